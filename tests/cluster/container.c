/* The part of Slurm's pyxis plugin that distdbg asks for, for machines that have neither pyxis nor enroot:
 *
 *   srun --container-image=FOLDER [--container-mounts=SRC:DST,…] [--container-workdir=DIR] COMMAND
 *
 * A task sees FOLDER as its root, with the machine's /proc, /dev, /sys and names of hosts, a /tmp of its own, and what
 * is mounted besides. No user namespaces, no image format, no hooks.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

SPANK_PLUGIN(container, 1)

static const char *const FURNISH =
    "set -e\n"
    "mount --make-rprivate /\n"
    "mount --bind \"$IMAGE\" \"$IMAGE\"\n"
    "bind() {\n"
    "  if [ -d \"$1\" ]; then mkdir -p \"$IMAGE$2\"; else mkdir -p \"$IMAGE${2%/*}\"; : >> \"$IMAGE$2\"; fi\n"
    "  mount --rbind \"$1\" \"$IMAGE$2\"\n"
    "}\n"
    "mkdir -p \"$IMAGE/tmp\"; mount -t tmpfs tmpfs \"$IMAGE/tmp\"\n"
    "for own in /proc /dev /sys /etc/hosts; do bind \"$own\" \"$own\"; done\n"
    "IFS=,; for one in $MOUNTS; do bind \"${one%%:*}\" \"${one#*:}\"; done\n";

enum { IMAGE, MOUNTS, WORKDIR, OPTIONS };
static const char *given[OPTIONS];

static int take(int option, const char *value, int remote)
{
    (void)remote;
    return (given[option] = strdup(value)) ? 0 : -1;
}

static struct spank_option options[] = {
    {"container-image", "FOLDER", "what the task sees as its root", 1, IMAGE, take},
    {"container-mounts", "SRC:DST[,…]", "folders and files that it sees besides", 1, MOUNTS, take},
    {"container-workdir", "DIR", "where it starts", 1, WORKDIR, take},
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    (void)count, (void)arguments;
    for (int i = 0; i < OPTIONS; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
    (void)spank, (void)count, (void)arguments;
    if (!given[IMAGE])
        return 0;
    setenv("IMAGE", given[IMAGE], 1);
    setenv("MOUNTS", given[MOUNTS] ? given[MOUNTS] : "", 1);
    if (unshare(CLONE_NEWNS) || system(FURNISH) || chroot(given[IMAGE]) || chdir("/"))
        return -1;
    return given[WORKDIR] ? chdir(given[WORKDIR]) : 0;
}
