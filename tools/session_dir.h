/* tools/session_dir.h
 * The folder of a session: where its processes meet. It is the caller's alone (0700, own uid, no symbolic link), since
 * whoever can write there can hand files and, later, descriptors to the processes of the session. */
#ifndef SUBLET_TOOLS_SESSION_DIR_H
#define SUBLET_TOOLS_SESSION_DIR_H

/* What to say where there is none, or nobody serves it. */
#define SESSION_NOBODY "nobody serves session '%s'; start it with 'sublet run --policy FILE', or 'sublet serve'"

/* Find the folder for @name_or_dir, make it if it is not there, check it.
 *   with a slash  that folder; its parent has to be there
 *   a name        ${XDG_RUNTIME_DIR:-/tmp}/sublet-<uid>/NAME
 *   NULL          SUBLET_SESSION where that is set (a run inside a run), else the name "default"
 * Returns the absolute path, which the caller frees. On failure says so on stderr, returns NULL and sets *ret_status.
 */
char *session_dir_open(const char *name_or_dir, int *ret_status);

/* The same, but a folder that is not there is none, and is not made: for who asks, so that a name with a slip in it leaves nothing
 * behind. */
char *session_dir_find(const char *name_or_dir, int *ret_status);

/* Make the folder @name inside @session (0700) unless it is there. Returns its path for the caller to free, NULL after
 * saying why not. */
char *session_dir_sub(const char *session, const char *name);

#endif
