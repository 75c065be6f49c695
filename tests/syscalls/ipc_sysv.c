// SPDX-License-Identifier: Apache-2.0
/* man 7 sysvipc */
#include "harness.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

TEST(ipc_shm_is_shared_and_counts)
{
	int id = shmget(IPC_PRIVATE, 5000, IPC_CREAT | 0600);
	struct shmid_ds ds;
	int *p;

	CHECK(id >= 0);
	p = shmat(id, NULL, 0);
	CHECK(p != (void *)-1 && *p == 0);
	if (fork() == 0) {
		*p = 7;
		_exit(0);
	}
	wait(NULL);
	CHECK(*p == 7);
	CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 1 && ds.shm_segsz == 5000);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(shmctl(id, IPC_STAT, &ds) == 0); /* lives on while attached */
	CHECK(shmdt(p) == 0);
	CHECK_ERRNO(shmctl(id, IPC_STAT, &ds), EINVAL);
	CHECK_ERRNO(shmdt(p), EINVAL);
}

TEST(ipc_sem_blocks_and_undoes)
{
	int id = semget(IPC_PRIVATE, 2, 0600);
	struct sembuf down = { 0, -1, SEM_UNDO }, up = { 0, 1, 0 }, no = { 0, -1, IPC_NOWAIT };
	pid_t pid;

	CHECK(id >= 0);
	CHECK_ERRNO(semop(id, &no, 1), EAGAIN);
	pid = fork();
	if (pid == 0)
		_exit(semop(id, &down, 1) != 0);
	usleep(50000);
	CHECK(semctl(id, 0, GETNCNT) == 1);
	CHECK(semop(id, &up, 1) == 0);
	waitpid(pid, NULL, 0);
	CHECK(semctl(id, 0, GETVAL) == 1); /* undone at exit */
	CHECK(semctl(id, 0, IPC_RMID) == 0);
	CHECK_ERRNO(semop(id, &up, 1), EINVAL);
}

TEST(ipc_msg_by_type)
{
	struct {
		long type;
		char text[8];
	} m = { 3, "three" };
	int id = msgget(IPC_PRIVATE, 0600);

	CHECK(id >= 0);
	CHECK(msgsnd(id, &m, 6, 0) == 0);
	m.type = 2;
	CHECK(msgsnd(id, &m, 6, 0) == 0);
	CHECK_ERRNO(msgrcv(id, &m, 8, 9, IPC_NOWAIT), ENOMSG);
	CHECK_ERRNO(msgrcv(id, &m, 2, 0, IPC_NOWAIT), E2BIG);
	CHECK(msgrcv(id, &m, 8, -5, 0) == 6 && m.type == 2);
	CHECK(msgrcv(id, &m, 8, 0, 0) == 6 && m.type == 3);
	CHECK(msgctl(id, IPC_RMID, NULL) == 0);
}

TEST_MAIN
