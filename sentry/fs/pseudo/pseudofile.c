// SPDX-License-Identifier: Apache-2.0
/*
 * Files whose text is made by ->show when they are read from the start, and kept until the next read
 * from the start or the close, so that a reader in pieces sees one state (as Linux's seq_file does).
 *
 * Lock order: file.pos_mu > pfs_file.mu (RANK_SEQ_FILE) > whatever ->show takes, path locks included.
 */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/fs/pseudo/pseudofs.h"
#include "sentry/kernel/kmem.h"
#include "sentry/vfs/vfs_state.h"

struct pfs_file {
	struct mutex mu;
	struct seqbuf text; /* (mu) */
	bool made;          /* (mu) */
	size_t heap;        /* (mu) charged for the text */
};

#define PFS_TEXT_MAX (48UL << 20) /* of a saved text */
#define PFS_STORE_MAX (PAGE_SIZE - 1) /* of one write */

struct pfs_file *pfs_file_create(void)
{
	struct pfs_file *pf = kzalloc(sizeof(*pf));

	mutex_init(&pf->mu, RANK_SEQ_FILE);
	seq_init(&pf->text);
	return pf;
}

void pfs_text_free(struct pfs_file *pf)
{
	kmem_uncharge(pf->heap);
	seq_fini(&pf->text);
	mutex_fini(&pf->mu);
	free(pf);
}

void pfs_file_release(struct file *f)
{
	pfs_text_free(f->priv);
}

static int make_text(struct pfs_file *pf, struct pfs_inode *pi)
{
	int err;

	kmem_uncharge(pf->heap);
	pf->heap = 0;
	pf->made = false;
	seq_fini(&pf->text);
	seq_init(&pf->text);
	err = pi->node->show(pi, &pf->text);
	if (!err && !kmem_charge(pf->text.len))
		err = -ENOMEM;
	else if (!err)
		pf->heap = pf->text.len;
	pf->made = err == 0;
	return err;
}

ssize_t pfs_text_read(struct pfs_inode *pi, struct pfs_file *pf, struct iter *it, int64_t *pos)
{
	size_t at, n;
	ssize_t r;
	int err;

	if (!pi->node->show)
		return -EINVAL;
	if (*pos < 0)
		return -EINVAL;
	AUTO_LOCK(&pf->mu);
	if (*pos == 0 || !pf->made) {
		err = make_text(pf, pi);
		if (err)
			return err;
	}
	if ((uint64_t)*pos >= pf->text.len)
		return 0;
	at = (size_t)*pos;
	n = MIN(pf->text.len - at, it->left);
	r = iter_copy_to(it, pf->text.buf + at, n);
	if (r > 0)
		*pos += r;
	return r;
}

ssize_t pfs_file_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	(void)t;
	return pfs_text_read(pfs_of(f->inode), f->priv, it, pos);
}

ssize_t pfs_file_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct pfs_inode *pi = pfs_of(f->inode);
	AUTO_FREE char *buf = NULL;
	size_t len = it->left;
	ssize_t n;

	if (!pi->node->store)
		return -EIO;
	if (!t)
		return -EINVAL;
	if (len > PFS_STORE_MAX)
		return -EINVAL;
	buf = kzalloc(len + 1);
	n = iter_copy_from(it, buf, len);
	if (n < 0)
		return n;
	buf[n] = '\0';
	n = pi->node->store(t, pi, buf, (size_t)n);
	if (n > 0)
		*pos += n;
	return n;
}

int64_t pfs_file_llseek(struct file *f, int64_t off, int whence)
{
	int64_t pos;

	if (whence == SEEK_SET)
		pos = off;
	else if (whence != SEEK_CUR || __builtin_add_overflow(f->pos, off, &pos))
		return -EINVAL;
	if (pos < 0)
		return -EINVAL;
	return f->pos = pos;
}

const struct file_ops pfs_file_fops = {
	.name = "seq",
	.release = pfs_file_release,
	.read = pfs_file_read,
	.write = pfs_file_write,
	.llseek = pfs_file_llseek,
	.state = &file_state_pfs,
};

int pfs_parse(const char *buf, int64_t min, int64_t max, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(buf, &end, 10);
	if (end == buf || errno)
		return -EINVAL;
	while (isspace((unsigned char)*end))
		end++;
	if (*end || v < min || v > max)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* ---- saving: the text as it was made, so that a reader in pieces goes on where it was ---- */

void pfs_text_fields(struct state *s, struct pfs_file **ret)
{
	struct pfs_file *pf = state_loading(s) ? pfs_file_create() : *ret;
	void *buf = pf->made ? pf->text.buf : NULL;
	size_t len = pf->made ? pf->text.len : 0;

	*ret = pf;
	state_bool(s, &pf->made);
	state_blob(s, &buf, &len, PFS_TEXT_MAX);
	if (!state_loading(s))
		return;
	seq_write(&pf->text, buf, len);
	free(buf);
	kmem_add(len);
	pf->heap = len;
}

static void text_file_fields(struct state *s, struct file *f)
{
	struct pfs_file *pf = f->priv;

	pfs_text_fields(s, &pf);
	f->priv = pf;
}

static void on_pfs(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_pfs) && !S_ISREG(f->inode->mode))
		state_fail(s, "a text file on what is none");
}

const struct file_state file_state_pfs = {
	.id = FILE_PFS,
	.ops = &pfs_file_fops,
	.fields = text_file_fields,
	.finish = on_pfs,
};
