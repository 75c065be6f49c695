// SPDX-License-Identifier: Apache-2.0
/* Opening images to go on from; see image_dir.h. What is in them is hostile. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/errno_text.h"
#include "runtime/image_dir.h"

#define VERIFY_BLOCK (1u << 20)

static int open_in(const char *dir, const char *name)
{
	AUTO_FREE char *path = kasprintf("%s/%s", dir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	return fd;
}

/* Does directory @dir hold image @id? */
static bool is_image(const char *dir, const uint8_t id[IMAGE_ID_LEN])
{
	AUTO_CLOSE int fd = open_in(dir, "state");
	uint8_t head[16 + IMAGE_ID_LEN];

	return fd >= 0 && pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       memcmp(head + 16, id, IMAGE_ID_LEN) == 0;
}

/* The page file of parent @id of the image in @dir, or -errno. */
static int open_parent_pages(const char *dir, const json_t *meta, const uint8_t id[IMAGE_ID_LEN])
{
	char hex[2 * IMAGE_ID_LEN + 1];
	AUTO_FREE char *beside = NULL, *told = NULL;
	const char *path;

	image_id_hex(id, hex);
	beside = kasprintf("%s/../%s", dir, hex);
	if (is_image(beside, id))
		return open_in(beside, "pages");
	path = json_string_value(
		json_object_get(json_object_get(json_object_get(meta, "extra"), "parents"), hex));
	if (!path)
		return -ENOENT;
	told = path[0] == '/' ? kstrdup(path) : kasprintf("%s/%s", dir, path);
	return is_image(told, id) ? open_in(told, "pages") : -ENOENT;
}

static int open_parents(struct image_source *s, const char *dir, char **ret_why)
{
	for (unsigned i = 0; i < s->meta->nparents; i++) {
		int fd = open_parent_pages(dir, s->meta->json, s->meta->parents[i]);
		char hex[2 * IMAGE_ID_LEN + 1];

		if (fd < 0) {
			image_id_hex(s->meta->parents[i], hex);
			*ret_why = kasprintf("it needs pages of image %s: %s", hex, errno_text(-fd));
			return -1;
		}
		s->from.fds[s->from.nfds++] = fd;
	}
	return 0;
}

static int verify_pages(int fd, const struct image_meta *m, char **ret_why)
{
	AUTO_FREE char *buf = kzalloc(VERIFY_BLOCK);
	XXH3_state_t *sum = XXH3_createState();
	uint64_t at = 0, digest;
	ssize_t n = 0;

	if (!sum || XXH3_64bits_reset(sum) != XXH_OK) {
		*ret_why = kstrdup("no memory");
		return -1;
	}
	while (at < m->page_bytes && (n = pread(fd, buf, VERIFY_BLOCK, (off_t)at)) > 0) {
		if (XXH3_64bits_update(sum, buf, (size_t)n) != XXH_OK)
			break;
		at += (uint64_t)n;
	}
	digest = XXH3_64bits_digest(sum);
	XXH3_freeState(sum);
	if (n >= 0 && at == m->page_bytes && digest == m->page_sum)
		return 0;
	*ret_why = kstrdup("the checksum of its pages is wrong: it is damaged");
	return -1;
}

static int check_pages(int fd, const struct image_meta *m, bool verify, char **ret_why)
{
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size != m->page_bytes) {
		*ret_why = kstrdup("its page file is cut short, or has grown");
		return -1;
	}
	return verify ? verify_pages(fd, m, ret_why) : 0;
}

static int read_state(struct image_source *s, char **ret_why)
{
	size_t len = 0;
	void *buf = image_slurp(s->from.state, &len);
	struct image img;
	int r;

	if (is_err(buf)) {
		*ret_why = kstrdup(errno_text((int)-ptr_err(buf)));
		return -1;
	}
	r = image_parse(buf, len, &img, ret_why);
	if (r == 0) {
		memcpy(s->id, img.id, sizeof(s->id));
		s->meta = image_meta_parse(&img.section[IMAGE_META], ret_why);
	}
	free(buf);
	return s->meta ? 0 : -1;
}

static int open_image(struct image_source *s, const char *path, bool verify, char **ret_why)
{
	int fd;

	s->from.state = open_in(path, "state");
	fd = s->from.state < 0 ? s->from.state : open_in(path, "pages");
	if (fd < 0) {
		*ret_why = kstrdup(errno_text(-fd));
		return -1;
	}
	s->from.fds = kcalloc(PAGES_PARENTS_MAX + 1, sizeof(int));
	s->from.fds[s->from.nfds++] = fd;
	if (read_state(s, ret_why) || check_pages(fd, s->meta, verify, ret_why))
		return -1;
	return open_parents(s, path, ret_why);
}

struct image_source *image_open(const char *path, bool verify, char **ret_why)
{
	struct image_source *s = kzalloc(sizeof(*s));
	AUTO_FREE char *why = NULL;

	s->from.state = -1;
	if (!open_image(s, path, verify, &why))
		return s;
	*ret_why = kasprintf("image %s: %s", path, why);
	image_close(s);
	return NULL;
}

void image_close(struct image_source *s)
{
	if (!s)
		return;
	if (s->from.state >= 0)
		close(s->from.state);
	for (unsigned i = 0; i < s->from.nfds; i++)
		close(s->from.fds[i]);
	free(s->from.fds);
	image_meta_free(s->meta);
	free(s);
}

/* ---- a branch ---- */

struct image_source *image_of_branch(int state, int *fds, unsigned nfds, char **ret_why)
{
	struct image_source *s = kzalloc(sizeof(*s));

	s->from = (struct restore_source){ .fork = true, .state = state, .fds = fds, .nfds = nfds };
	if (!read_state(s, ret_why))
		return s;
	image_close(s);
	return NULL;
}
