// Names of threads, as top and debuggers show them.
#pragma once

#include <pthread.h>

namespace sluice {

// Of the calling thread; at most 15 bytes.
inline void name_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace sluice
