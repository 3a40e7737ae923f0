// What libsluice_mpi.so offers: Open MPI behind plain C, so that the program itself needs no MPI to start.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct SluiceTransfer {
  int peer;
  void* bytes;
  uint64_t size;
};

// Functions that can fail return null, or a text that stays valid until the next call. One thread at a time.
struct SluiceMpi {
  // Joins the ranks that mpirun has started.
  const char* (*start)(int* rank, int* size);
  // As dist::Communicator::exchange. While it waits, keep_waiting(context) is asked now and then; once that is 0, the
  // exchange is given up.
  const char* (*exchange)(const SluiceTransfer* out, size_t outs, const SluiceTransfer* in, size_t ins,
                          int (*keep_waiting)(void*), void* context);
  // As dist::Communicator's.
  const char* (*post)(const SluiceTransfer* out);
  const char* (*progress)();
  // Leaves in good order, when all ranks do.
  void (*stop)();
};

const SluiceMpi* sluice_mpi();
}
