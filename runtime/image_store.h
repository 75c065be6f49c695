// SPDX-License-Identifier: Apache-2.0
/*
 * The images of a sandbox, below its state directory:
 *
 *   images/NUMBER/     an image (image_dir.h), named by its number: parents are found beside it
 *   images/NAME        a symbolic link to one: a snapshot that somebody asked for
 *   lineage.json       where the sandbox stands among them:
 *     head       number of the image that it was last saved to or went on from
 *     suspended  true: it has no processes, and goes on from `head`
 *     from       {id, image, time}: what it was branched or restored from, if it was
 *     local_config   true: it runs by config.json of its bundle, never by what an image says (import)
 *
 * An image stays while it has a name, is the head, or holds pages of one that stays; the others (of earlier
 * suspends, and of --checkpoint-every) are removed by store_prune().
 *
 * Everything that changes the store, or ends and begins processes of the sandbox because of it, holds
 * store_lock(), so that two commands that wake a sandbox at once wake it once.
 */
#ifndef RUNTIME_IMAGE_STORE_H
#define RUNTIME_IMAGE_STORE_H

#include <jansson.h>
#include <stdbool.h>

#include "runtime/image_dir.h"
#include "runtime/statedir.h"

#define STORE_NUMBER_LEN (2 * IMAGE_ID_LEN)

/* Waits for its turn. 0 or -errno. Not nested. */
int store_lock(struct statedir *s);
void store_unlock(struct statedir *s);

/* New reference, never NULL. */
json_t *store_lineage(struct statedir *s);
/* Durable. 0, or -1 with *ret_why (heap). */
int store_set_lineage(struct statedir *s, json_t *lineage, char **ret_why);
/* Without processes, to go on from its head? (What says so counts only while there is no sentry.) */
bool store_suspended(struct statedir *s);
/* Notes in a new sandbox's lineage that it came from image @number (or NULL: a live branch) of container @id. */
void store_came_from(struct statedir *s, const char *id, const char *number);

struct store_image {
	char number[STORE_NUMBER_LEN + 1];
	char *names;     /* of the links to it, separated by blanks; heap, perhaps "" */
	char *previous;  /* number of the image that the sandbox had gone on from; heap, or NULL */
	json_t *parents; /* reference: array of numbers, whose page files it needs */
	long long time, time_ns; /* when it was frozen */
	unsigned long long bytes; /* on disk */
};

struct store_list {
	struct store_image *v; /* oldest first */
	unsigned n;
};

/* All whole images. What can't be read is left out, with a warning in the log. */
struct store_list *store_list(struct statedir *s);
void store_list_free(struct store_list *l);
DEFINE_AUTO(struct store_list, store_list_free)

/* Is @name fit for a snapshot? NULL, or what is wrong with it (static text). */
const char *store_check_name(const char *name);
/* The number of the image that @ref (a name, or a number or its first 8 digits) says: heap; NULL with *ret_why. */
char *store_find(struct statedir *s, const char *ref, char **ret_why);
/* Where image @number is (heap). */
char *store_path(const struct statedir *s, const char *number);
/* Makes @name another name of @number, in place of what it was. 0, or -1 with *ret_why. */
int store_name(struct statedir *s, const char *name, const char *number, char **ret_why);
/* Takes the name away; -1 with *ret_why when there is no such snapshot. */
int store_unname(struct statedir *s, const char *name, char **ret_why);

/* Saves the running sandbox into its store, with what it has already inherited, and makes that its head.
 * @suspend: it stands still afterwards, marked as suspended, until *ret_sock is closed. The number (heap), or NULL
 * with *ret_why. Context: locked. */
char *store_save(struct statedir *s, bool suspend, int *ret_sock, char **ret_why);
/* Removes what nobody needs: number of images, their bytes in *ret_bytes. Context: locked. */
unsigned store_prune(struct statedir *s, unsigned long long *ret_bytes);

/* "2026-01-02T03:04:05Z" (heap). */
char *store_time(long long time);

#endif
