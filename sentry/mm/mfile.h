// SPDX-License-Identifier: Apache-2.0
/*
 * Memory files: all guest memory, and every page of tmpfs and of the writable layer, is a range of
 * one of these. An mfile is a host file of pages (unlinked tmpfs file, or a host file that the
 * gofer donated) which both the sentry and stubs can map.
 *
 * Two kinds:
 *   allocating  made here; ranges are handed out with a reference count per page, and a range whose
 *               count falls to zero is punched out of the file, so it takes no memory
 *   host file   wraps a descriptor of the gofer's; offsets are the file's own, no allocation; it may
 *               be truncated under us, so every access goes through safecopy (sentry/mm/safecopy.h)
 *
 * Each allocating mfile has a second, read-only descriptor: stubs that share its pages copy-on-write
 * get only that, so a stub that is taken over can't write to its parent's memory.
 *
 * The sentry's own mapping is made in chunks on first use and cached; mfile_ptr() is lock-free on a
 * hit. Ranges within one chunk are contiguous in the sentry.
 *
 * Lock order: mm.mu > INODE_PAGES > mfile.mu (RANK_MFILE).
 */
#ifndef SENTRY_MM_MFILE_H
#define SENTRY_MM_MFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct mfile;

#define MFILE_CHUNK_SHIFT 26 /* 64 MiB: unit of the sentry's own mappings */
#define MFILE_CHUNK_SIZE (1UL << MFILE_CHUNK_SHIFT)

/* Makes a pair of descriptors of one new, empty, unlinked file: [0] read-write, [1] read-only.
 * 0 or -errno. Set once at start (the gofer's memory service; a plain memfd in unit tests). */
typedef int (*mfile_provider_fn)(int fds[2]);
void mfile_set_provider(mfile_provider_fn fn);
/* The same for files that lie on a disk, if there are to be any. */
void mfile_set_disk_provider(mfile_provider_fn fn);
bool mfile_disk_provided(void);

/* A new allocating mfile; err_ptr on failure. @name is for debug output. */
struct mfile *mfile_create(const char *name);
/* One on disk: its pages are no memory, and touching them fails when the disk is full (SIGBUS). */
struct mfile *mfile_create_on_disk(const char *name);
bool mfile_is_on_disk(const struct mfile *mf);
/* Bytes that are left on the disk that it lies on. */
uint64_t mfile_disk_left(const struct mfile *mf);
/* Wraps @fd of a host file (takes ownership, also on failure). @writable: stubs may be given it for
 * shared writable mappings. */
struct mfile *mfile_wrap_host(int fd, bool writable);
/* Wraps @fd (taken over) of memory that is an image's, or another sandbox's frozen file: like a host file,
 * but its pages count as anonymous memory. Read-only. */
struct mfile *mfile_wrap_image(int fd);
bool mfile_is_image(const struct mfile *mf);
/* It lies on a file system that nothing may be executed from: text in it has to be copied. */
bool mfile_noexec(const struct mfile *mf);
/* Where the file's pages are in images (sentry/state/pages.c): one block that is freed with the file. */
void *mfile_origin(const struct mfile *mf);
void mfile_set_origin(struct mfile *mf, void *origin);
struct mfile *mfile_get(struct mfile *mf);
void mfile_put(struct mfile *mf);

/* Descriptors, borrowed. rofd equals rwfd for a host file opened read-only; -1: no such right. */
int mfile_rwfd(const struct mfile *mf);
int mfile_rofd(const struct mfile *mf);
bool mfile_is_host(const struct mfile *mf);
uint64_t mfile_id(const struct mfile *mf);

/* A range of @len bytes (page multiple) with one reference on each page; sparse: takes no memory
 * until touched, reads as zeroes. -ENOMEM when the sandbox's limit is reached. */
int __must_check mfile_alloc(struct mfile *mf, uint64_t len, uint64_t *ret_off);
/* The same at a given place, so that what is adjacent for the guest is adjacent in the file and merges
 * in the host (growing a heap or a stack). False when it isn't free: then use mfile_alloc(). */
bool __must_check mfile_alloc_at(struct mfile *mf, uint64_t off, uint64_t len);
/* One more / one less reference on each page of the range. Pages at zero are freed and punched. No-ops
 * on host files. */
void mfile_range_get(struct mfile *mf, uint64_t off, uint64_t len);
void mfile_range_put(struct mfile *mf, uint64_t off, uint64_t len);
/* Ends a reference to pages that nobody has ever written to: there is no memory to give back. */
void mfile_range_put_unused(struct mfile *mf, uint64_t off, uint64_t len);
/* Length (<= @len) from @off on in which every page has exactly one reference; 0 if the first hasn't. */
uint64_t mfile_range_exclusive(struct mfile *mf, uint64_t off, uint64_t len);
/*
 * Gives back the memory of a file that is about to be put and that nobody looks at any more, if it is much:
 * a dead stub may hold the last descriptors for a while, and somebody may be waiting for memory (oom.c).
 */
void mfile_empty(struct mfile *mf);
/* Frees the memory below the range without giving the range up (MADV_DONTNEED, hole punching). */
void mfile_range_discard(struct mfile *mf, uint64_t off, uint64_t len);
/*
 * The file's memory is a branch's, too: nothing of it is punched from now on, so what is given up stays until
 * as many mfile_share_end() have come, which punch it. Nobody may allocate from it any more, not afterwards either.
 */
void mfile_share_out(struct mfile *mf);
void mfile_share_end(struct mfile *mf);
/* Bytes of memory that the range really occupies now (mincore, st_blocks, RSS); by SEEK_DATA/HOLE. */
uint64_t mfile_range_resident(struct mfile *mf, uint64_t off, uint64_t len);

/*
 * Host address of byte @off. *ret_len holds the length wanted and is cut to what is contiguous. NULL when the
 * chunk can't be mapped. Valid as long as the caller holds a reference on @mf. Reading or writing it
 * may SIGBUS: only through safecopy, unless the range is one that the sentry alone owns.
 */
void *mfile_ptr(struct mfile *mf, uint64_t off, uint64_t *ret_len);
/* Like mfile_ptr, for reading only (works on read-only host files). */
const void *mfile_cptr(struct mfile *mf, uint64_t off, uint64_t *ret_len);

/* The first stretch of memory in [@off, @end), page aligned; the rest of it is zeroes that take none. */
bool mfile_next_data(struct mfile *mf, uint64_t off, uint64_t end, uint64_t *ret_start,
		     uint64_t *ret_end);
/* Copies what is memory in a range to a fresh range of @to; the rest stays zeroes. 0 or -ENOMEM. */
int __must_check mfile_copy(struct mfile *to, uint64_t to_off, struct mfile *from, uint64_t from_off,
			    uint64_t len);
/* Bytes of memory that the whole file occupies. */
uint64_t mfile_held(struct mfile *mf);
/* Makes the range take its memory now, so that touching it can't fail. 0 or -ENOMEM. */
int __must_check mfile_commit(struct mfile *mf, uint64_t off, uint64_t len);
/* What all memory files together may occupy, and what is left of it, in bytes, by one cheap host call.
 * False: nothing bounds them (unit tests), or there is none yet. */
bool mfile_space(uint64_t *ret_total, uint64_t *ret_left);

/* Bytes allocated (reserved) in all mfiles. */
uint64_t mfile_total_reserved(void);

#endif
