// SPDX-License-Identifier: GPL-2.0-or-later
/* A SPANK plugin that puts tasks into a container as pyxis does: --container-image=FOLDER is the root folder, and
 * --container-mounts=FROM:TO[:FLAGS],... is mounted in it. All tasks of a step on a node share one mount namespace, which each
 * joins before Slurm looks for its program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis, 1);

static char image[4096], mounts[65536];
static int mount_ns = -1;

static int take(int which, const char *text, int remote) {
  (void)remote;
  snprintf(which == 1 ? image : mounts, which == 1 ? sizeof image : sizeof mounts, "%s", text ? text : "");
  return 0;
}
static struct spank_option options[] = {
    {"container-image", "FOLDER", "the root folder of the tasks", 1, 1, take},
    {"container-mounts", "FROM:TO,...", "what is mounted in it", 1, 2, take}};

int slurm_spank_init(spank_t sp, int argc, char **argv) {
  (void)argc;
  (void)argv;
  for (int i = 0; i < 2; ++i)
    if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS) return -1;
  return 0;
}

static int failed(const char *what, const char *path) {
  slurm_error("pyxis: %s %s: %s", what, path, strerror(errno));
  return -1;
}

/* Makes the folders above `path`, and a folder or an empty file there. */
static int make_target(const char *path, int is_folder) {
  char each[8192];
  struct stat found;
  snprintf(each, sizeof each, "%s", path);
  for (char *at = each + 1; (at = strchr(at, '/')) != NULL; ++at) {
    *at = '\0';
    mkdir(each, 0755);
    *at = '/';
  }
  if (stat(each, &found) == 0) return 0;
  if (is_folder) return mkdir(each, 0755);
  int fd = open(each, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  return fd < 0 ? -1 : close(fd);
}

static int mount_in(const char *from, const char *root, const char *to) {
  char target[8192];
  struct stat found;
  snprintf(target, sizeof target, "%s%s", root, to);
  if (stat(from, &found) != 0) return failed("no such mount:", from);
  if (make_target(target, S_ISDIR(found.st_mode)) != 0) return failed("cannot make", target);
  if (mount(from, target, NULL, MS_BIND | MS_REC, NULL) != 0) return failed("cannot mount", from);
  return 0;
}

static int make_root(void) {
  static const char *of_host[] = {"/proc", "/dev", "/sys"};
  char root[] = "/tmp/container-XXXXXX", own[8192], *rest = NULL;
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return failed("cannot unshare for", image);
  /* A writable copy of the image, as enroot makes one for each step. */
  if (mkdtemp(root) == NULL || chmod(root, 0755) != 0) return failed("cannot make", root);
  if (mount("root", root, "tmpfs", 0, "mode=755") != 0) return failed("cannot mount", root);
  snprintf(own, sizeof own, "cp -a '%s/.' '%s/'", image, root);
  if (system(own) != 0) return failed("cannot copy", image);
  for (int i = 0; i < 3; ++i)
    if (mount_in(of_host[i], root, of_host[i]) != 0) return -1;
  for (char *each = strtok_r(mounts, ",", &rest); each != NULL; each = strtok_r(NULL, ",", &rest)) {
    char *to = strchr(each, ':');
    if (to != NULL) *to++ = '\0';
    char *flags = to != NULL ? strchr(to, ':') : NULL;
    if (flags != NULL) *flags = '\0';
    if (mount_in(each, root, to != NULL ? to : each) != 0) return -1;
  }
  if (chdir(root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) return failed("cannot pivot to", root);
  return 0;
}

/* The batch script stays outside: sbatch is given the options for the steps. */
static int is_script(spank_t sp) {
  uint32_t step = 0;
  return spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step == 0xfffffffb;
}

/* Makes the step's container in a child, and keeps its mount namespace. */
int slurm_spank_user_init(spank_t sp, int argc, char **argv) {
  int made[2], seen[2];
  char path[64], said = 0;
  pid_t child;
  (void)argc;
  (void)argv;
  if (!spank_remote(sp) || image[0] == '\0' || is_script(sp)) return 0;
  if (pipe2(made, O_CLOEXEC) != 0 || pipe2(seen, O_CLOEXEC) != 0 || (child = fork()) < 0) return failed("cannot fork for", image);
  if (child == 0) {
    said = make_root() == 0;
    if (write(made[1], &said, 1) == 1) (void)!read(seen[0], &said, 1);
    _exit(0);
  }
  if (read(made[0], &said, 1) == 1 && said) {
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)child);
    mount_ns = open(path, O_RDONLY | O_CLOEXEC);
  }
  (void)!write(seen[1], &said, 1);
  waitpid(child, NULL, 0);
  for (int i = 0; i < 2; ++i) close(made[i]), close(seen[i]);
  return 0; /* as pyxis: each task says that it failed */
}

int slurm_spank_task_init_privileged(spank_t sp, int argc, char **argv) {
  (void)argc;
  (void)argv;
  if (image[0] == '\0' || is_script(sp)) return 0;
  if (mount_ns < 0) return failed("no container of", image);
  if (setns(mount_ns, CLONE_NEWNS) != 0 || chdir("/") != 0) return failed("cannot join the container of", image);
  return 0;
}
