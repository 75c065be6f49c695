// SPDX-License-Identifier: Apache-2.0
/* export and import: containers on their way to other machines. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"
#include "runtime/image_flatten.h"
#include "runtime/image_store.h"
#include "runtime/oci_layout.h"
#include "runtime/park.h"
#include "runtime/spec.h"

static const char *oci, *bundle_dir;
static bool trust_config;

/* ---- export ---- */

/* The image of snapshot @name, or of now; opened, so that it stays even if it is pruned meanwhile. */
static struct image_source *open_image(struct statedir *s, const char *name)
{
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = name ? store_find(s, name, &why) : park_image(s);
	AUTO_FREE char *path = number ? store_path(s, number) : NULL;
	struct image_source *src = path ? image_open(path, false, &why) : NULL;

	if (!src && why)
		(void)cli_fail("%s", why);
	return src;
}

static int export(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	AUTO(image_close) struct image_source *src = NULL;
	char digest[SHA256_HEX_LEN + 1];
	AUTO_FREE char *why = NULL;
	uint64_t bytes;
	int r = s ? store_lock(s) : 0;

	if (!s)
		return 1;
	if (!oci && isatty(1))
		return cli_fail("export: it isn't for a terminal; redirect standard output to a file");
	if (r)
		return cli_fail("cannot lock %s: %s", s->path, errno_text(-r));
	src = open_image(s, argc > 1 ? argv[1] : NULL);
	store_unlock(s);
	if (!src)
		return 1;
	r = oci ? oci_layout_write(oci, src, s->id, &why) : image_export(src, 1, digest, &bytes, &why);
	return r ? cli_fail("cannot export container %s: %s", s->id, why) : 0;
}

static const struct opt export_opts[] = {
	{ "oci", 0, OPT_STR, &oci, "DIR", "as an artifact in an OCI image layout at DIR, for skopeo" },
	{ 0 },
};

const struct command cmd_export = {
	.name = "export",
	.synopsis = "[options] ID [NAME]",
	.summary = "write a container, with all that it needs, to standard output",
	.details =
		"  As it is now, or was at snapshot NAME: a zstd-compressed stream with checksums, for `import`\n"
		"  on this machine or another. A running container goes on. The root file system's image and\n"
		"  bind mounts are named in it, not included: the other machine must have the same.\n"
		"  It holds the container's memory. Keep it as secret as that.",
	.examples = "  holdfast export agent > agent.tar.zst\n"
		    "  holdfast export --oci /tmp/agent agent && skopeo copy oci:/tmp/agent:agent "
		    "docker://HOST/agent",
	.opts = export_opts,
	.min_args = 1,
	.max_args = 2,
	.run = export,
};

/* ---- import ---- */

/* state.json of a container that has never run here, and has no hooks to run when it is deleted. */
static int write_state(struct statedir *s, json_t *meta)
{
	json_t *config = json_object_get(meta, "config");
	const char *was = json_string_value(json_object_get(json_object_get(meta, "extra"), "bundle"));
	AUTO_FREE char *given = bundle_dir ? realpath(bundle_dir, NULL) : NULL;
	const char *bundle = given ?: was ?: "/";
	const char *root = json_string_value(json_object_get(json_object_get(config, "root"), "path")) ?: "rootfs";
	AUTO_FREE char *rootfs = root[0] == '/' ? kstrdup(root) : kasprintf("%s/%s", bundle, root);
	AUTO_FREE char *created = store_time(time(NULL));
	json_t *j;
	int r;

	if (bundle_dir && !given)
		return cli_fail("bundle %s: %s", bundle_dir, errno_text(errno));
	j = json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:O*}", "ociVersion", OCI_SPEC_VERSION, "id", s->id,
		      "pid", 0, "bundle", bundle, "rootfs", rootfs, "created", created, "annotations",
		      json_object_get(config, "annotations"));
	r = statedir_save(s, "state.json", j);
	json_decref(j);
	return r ? cli_fail("cannot write %s/state.json: %s", s->path, errno_text(-r)) : 0;
}

static int write_lineage(struct statedir *s, json_t *meta, const char *number)
{
	json_t *lineage = json_pack("{s:s, s:b, s:b, s:{s:O*, s:O*}}", "head", number, "suspended", 1,
				    "local_config", bundle_dir != NULL, "from", "id",
				    json_object_get(meta, "container"), "time", json_object_get(meta, "time"));
	AUTO_FREE char *why = NULL;
	int r = store_set_lineage(s, lineage, &why);

	json_decref(lineage);
	return r ? cli_fail("%s", why) : 0;
}

/* The image, checked, into the store of @s. 0, or 1 after a message. */
static int receive(struct statedir *s, char **number, json_t **meta)
{
	AUTO_FREE char *dir = store_path(s, "");
	char digest[SHA256_HEX_LEN + 1];
	AUTO_FREE char *why = NULL;
	AUTO_CLOSE int fd = oci ? oci_layout_open(oci, digest, &why) : dup(0);

	if (fd >= 0 && mkdir(dir, 0700))
		why = kasprintf("cannot make %s: %s", dir, errno_text(errno));
	if (fd < 0 || why || image_import(fd, oci ? digest : NULL, dir, number, meta, &why))
		return cli_fail("cannot import: %s", why ?: errno_text(errno));
	return 0;
}

static int import(int argc, char **argv)
{
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = NULL;
	AUTO(statedir_close) struct statedir *s = NULL;
	json_t *meta = NULL;
	int r;

	(void)argc;
	if (!oci && isatty(0))
		return cli_fail("import: it isn't for a terminal; redirect standard input from a file");
	if (!bundle_dir == !trust_config)
		return cli_fail("import: give --bundle DIR, whose config.json says what the container may reach "
				"here, or --trust-config, if you trust whoever wrote the stream with that");
	s = statedir_create(globals.root, argv[0], &why);
	if (!s)
		return cli_fail("%s", why);
	/* state.json comes last: a directory without one is no container yet. */
	r = receive(s, &number, &meta) || write_lineage(s, meta, number) || write_state(s, meta);
	json_decref(meta);
	if (r)
		(void)statedir_remove(s); /* the first failure is what is reported */
	return r;
}

static const struct opt import_opts[] = {
	{ "oci", 0, OPT_STR, &oci, "DIR", "from an OCI image layout, not from standard input" },
	{ "bundle", 'b', OPT_STR, &bundle_dir, "DIR", "its bundle on this machine, by whose config.json it runs" },
	{ "trust-config", 0, OPT_FLAG, &trust_config, NULL, "it runs by the configuration that the stream has" },
	{ 0 },
};

const struct command cmd_import = {
	.name = "import",
	.synopsis = "[options] ID",
	.summary = "make a suspended container from what `export` wrote",
	.details =
		"  Reads all of it, compares the checksums, and lists it as container ID, suspended; `wake` or\n"
		"  `exec` let it go on. What is damaged or cut short, or comes from a machine whose CPU has\n"
		"  features that this one lacks, is refused and leaves nothing.\n"
		"  What it may reach on this machine (root file system, bind mounts, hooks) is what config.json\n"
		"  of --bundle says, which must have the same mount points. A stream's own configuration can\n"
		"  name any file and any hook: --trust-config is for streams of your own.",
	.examples = "  ssh host holdfast export agent | holdfast import --bundle /srv/agent agent",
	.opts = import_opts,
	.min_args = 1,
	.max_args = 1,
	.run = import,
};
