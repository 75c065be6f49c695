// SPDX-License-Identifier: Apache-2.0
/*
 * See oci_layout.h, and the OCI image-spec's image-layout.md and manifest.md ("Guidelines for Artifact Usage"): a
 * manifest whose config is empty and whose one layer is the exported stream. index.json is replaced last, so
 * that a layout names nothing that isn't whole.
 */
#include "runtime/oci_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/image_flatten.h"

#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define EMPTY_TYPE "application/vnd.oci.empty.v1+json"
#define ARTIFACT_TYPE "application/vnd.holdfast.image.v1"
#define LAYER_TYPE "application/vnd.holdfast.image.v1.tar+zstd"
#define FILE_MAX (4u << 20)

static int why_not(char **ret_why, const char *what, const char *path)
{
	*ret_why = kasprintf("%s %s: %s", what, path, strerror(errno));
	return -1;
}

/* ---- writing ---- */

static int write_file(const char *path, const char *text, char **ret_why)
{
	AUTO_FREE char *tmp = kasprintf("%s.new", path);
	AUTO_CLOSE int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t n = strlen(text);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n || fsync(fd) || rename(tmp, path))
		return why_not(ret_why, "cannot write", path);
	return 0;
}

/* A small blob. Its descriptor (new reference), or NULL with *ret_why. */
static json_t *write_blob(const char *dir, const char *type, const char *text, char **ret_why)
{
	char digest[SHA256_HEX_LEN + 1];
	AUTO_FREE char *path = NULL;
	AUTO_FREE char *name = NULL;
	struct sha256 sha;

	sha256_init(&sha);
	sha256_update(&sha, text, strlen(text));
	sha256_hex(&sha, digest);
	path = kasprintf("%s/blobs/sha256/%s", dir, digest);
	name = kasprintf("sha256:%s", digest);
	if (write_file(path, text, ret_why))
		return NULL;
	return json_pack("{s:s, s:s, s:I}", "mediaType", type, "digest", name, "size",
			 (json_int_t)strlen(text));
}

/* The stream as a blob: its descriptor, or NULL with *ret_why. */
static json_t *write_layer(const char *dir, const struct image_source *src, char **ret_why)
{
	AUTO_FREE char *tmp = kasprintf("%s/blobs/sha256/.layer.%d", dir, getpid());
	AUTO_CLOSE int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char digest[SHA256_HEX_LEN + 1];
	AUTO_FREE char *path = NULL;
	AUTO_FREE char *name = NULL;
	uint64_t bytes = 0;

	if (fd < 0) {
		(void)why_not(ret_why, "cannot write", tmp);
		return NULL;
	}
	if (image_export(src, fd, digest, &bytes, ret_why)) {
		(void)unlink(tmp); /* of no use */
		return NULL;
	}
	path = kasprintf("%s/blobs/sha256/%s", dir, digest);
	name = kasprintf("sha256:%s", digest);
	if (fsync(fd) || rename(tmp, path)) {
		(void)why_not(ret_why, "cannot write", path);
		(void)unlink(tmp);
		return NULL;
	}
	return json_pack("{s:s, s:s, s:I, s:{s:s}}", "mediaType", LAYER_TYPE, "digest", name, "size",
			 (json_int_t)bytes, "annotations", "org.opencontainers.image.title", "image.tar.zst");
}

static int make_dirs(const char *dir, char **ret_why)
{
	AUTO_FREE char *blobs = kasprintf("%s/blobs", dir);
	AUTO_FREE char *sha = kasprintf("%s/blobs/sha256", dir);
	const char *all[] = { dir, blobs, sha };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (mkdir(all[i], 0700) && errno != EEXIST)
			return why_not(ret_why, "cannot make", all[i]);
	return 0;
}

/* The manifest's descriptor, or NULL with *ret_why. */
static json_t *write_manifest(const char *dir, json_t *config, json_t *layer, char **ret_why)
{
	json_t *m = json_pack("{s:i, s:s, s:s, s:O, s:[O]}", "schemaVersion", 2, "mediaType", MANIFEST_TYPE,
			      "artifactType", ARTIFACT_TYPE, "config", config, "layers", layer);
	AUTO_FREE char *text = json_dumps(m, JSON_COMPACT);

	json_decref(m);
	return write_blob(dir, MANIFEST_TYPE, text, ret_why);
}

static int write_index(const char *dir, json_t *manifest, const char *name, char **ret_why)
{
	AUTO_FREE char *version = kasprintf("%s/oci-layout", dir);
	AUTO_FREE char *index = kasprintf("%s/index.json", dir);
	AUTO_FREE char *text = NULL;
	json_t *j;

	json_object_set_new(manifest, "annotations", json_pack("{s:s}", "org.opencontainers.image.ref.name", name));
	j = json_pack("{s:i, s:[O]}", "schemaVersion", 2, "manifests", manifest);
	text = json_dumps(j, JSON_COMPACT);
	json_decref(j);
	return write_file(version, "{\"imageLayoutVersion\":\"1.0.0\"}", ret_why) ||
			       write_file(index, text, ret_why) ?
		       -1 :
		       0;
}

int oci_layout_write(const char *dir, const struct image_source *src, const char *name, char **ret_why)
{
	json_t *config = NULL, *layer = NULL, *manifest = NULL;
	int r = make_dirs(dir, ret_why);

	if (!r)
		layer = write_layer(dir, src, ret_why);
	if (layer)
		config = write_blob(dir, EMPTY_TYPE, "{}", ret_why);
	if (config)
		manifest = write_manifest(dir, config, layer, ret_why);
	r = manifest ? write_index(dir, manifest, name, ret_why) : -1;
	json_decref(config);
	json_decref(layer);
	json_decref(manifest);
	return r;
}

/* ---- reading: anybody's ---- */

/* The digits of a "sha256:..." in a descriptor, or NULL. */
static const char *digits_of(const json_t *descriptor)
{
	const char *d = json_string_value(json_object_get(descriptor, "digest"));

	if (!d || strncmp(d, "sha256:", 7) != 0 || strlen(d + 7) != SHA256_HEX_LEN ||
	    strspn(d + 7, "0123456789abcdef") != SHA256_HEX_LEN)
		return NULL;
	return d + 7;
}

/* @want: its digest, or NULL. New reference, or NULL with *ret_why. */
static json_t *read_json(const char *path, const char *want, char **ret_why)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FREE char *buf = kzalloc(FILE_MAX);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, FILE_MAX);
	char digest[SHA256_HEX_LEN + 1];
	struct sha256 sha;
	json_t *j = NULL;

	if (n < 0) {
		(void)why_not(ret_why, "cannot read", path);
		return NULL;
	}
	sha256_init(&sha);
	sha256_update(&sha, buf, (size_t)n);
	sha256_hex(&sha, digest);
	if (!want || !strcmp(want, digest))
		j = json_loadb(buf, (size_t)n, 0, NULL);
	if (!j)
		*ret_why = kasprintf("%s is damaged", path);
	return j;
}

/* The first layer that is one of ours: its digits, or NULL. */
static const char *find_layer(const json_t *manifest)
{
	json_t *e;
	size_t i;

	json_array_foreach(json_object_get(manifest, "layers"), i, e)
		if (!strcmp(json_string_value(json_object_get(e, "mediaType")) ?: "", LAYER_TYPE))
			return digits_of(e);
	return NULL;
}

int oci_layout_open(const char *dir, char digest[SHA256_HEX_LEN + 1], char **ret_why)
{
	AUTO_FREE char *index = kasprintf("%s/index.json", dir);
	json_t *list = read_json(index, NULL, ret_why), *manifest = NULL;
	const char *d = digits_of(json_array_get(json_object_get(list, "manifests"), 0));
	AUTO_FREE char *path = NULL;
	int fd = -1;

	if (d) {
		path = kasprintf("%s/blobs/sha256/%s", dir, d);
		manifest = read_json(path, d, ret_why);
	}
	d = find_layer(manifest);
	if (d) {
		AUTO_FREE char *blob = kasprintf("%s/blobs/sha256/%s", dir, d);

		memcpy(digest, d, SHA256_HEX_LEN + 1);
		fd = open(blob, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			(void)why_not(ret_why, "cannot read", blob);
	} else if (!*ret_why) {
		*ret_why = kasprintf("%s holds no exported container", dir);
	}
	json_decref(list);
	json_decref(manifest);
	return fd;
}
