// Does something as another user, in a thread that is one.
//
//   if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
//   AsUser(1234, [&] { connect(...); });
//
// Threading: waits for the thread. Only this thread is the other user.
#ifndef TESTS_SUPPORT_AS_USER_H_
#define TESTS_SUPPORT_AS_USER_H_

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <thread>

namespace seqpoint {

template <typename Function>
void AsUser(uid_t user, const Function& function) {
  std::thread([&] {
    // The system call is of a thread; the function of that name changes all of them.
    if (syscall(SYS_setresuid, -1, user, -1) == 0) function();
  }).join();
}

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_AS_USER_H_
