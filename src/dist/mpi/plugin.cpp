#include "dist/mpi/plugin.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kTag = 1;
constexpr auto kLongestSleep = std::chrono::microseconds(200);
constexpr int kBusyPolls = 2000;  // in which a rank of the same step answers
constexpr int kPollsPerQuestion = 64;

std::string problem;
std::vector<MPI_Request> requests;

// What was posted and has not left yet, the oldest first.
struct Posted {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<char> bytes;
};
std::deque<Posted> posted;

const char* failed(const char* what, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  problem = std::string(what) + ": " + std::string(text, static_cast<size_t>(length));
  return problem.c_str();
}

const char* start(int* rank, int* size) {
  int have = 0;
  MPI_Initialized(&have);
  int granted = MPI_THREAD_SINGLE;
  const int code = have != 0 ? MPI_Query_thread(&granted)
                             : MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &granted);
  if (code != MPI_SUCCESS) return failed("MPI_Init_thread", code);
  if (granted < MPI_THREAD_SERIALIZED)
    return "this MPI serves one thread only; MPI_THREAD_SERIALIZED is needed";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  return nullptr;
}

// Polls, at first without a pause, then less and less often: ranks may have to share cores.
const char* wait_for_all(int (*keep_waiting)(void*), void* context) {
  std::chrono::microseconds pause(1);
  for (int polls = 1;; ++polls) {
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) return failed("MPI_Testall", code);
    if (done != 0) return nullptr;
    if (polls % kPollsPerQuestion == 0 && keep_waiting(context) == 0) return "given up";
    if (polls < kBusyPolls) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestSleep);
    }
  }
}

const char* exchange(const SluiceTransfer* out, size_t outs, const SluiceTransfer* in, size_t ins,
                     int (*keep_waiting)(void*), void* context) {
  requests.assign(outs + ins, MPI_REQUEST_NULL);
  for (size_t i = 0; i < outs + ins; ++i) {
    const bool sends = i >= ins;
    const SluiceTransfer& item = sends ? out[i - ins] : in[i];
    if (item.size > INT_MAX) return "a message of more than 2 GiB";
    const auto bytes = static_cast<int>(item.size);
    const int code =
        sends ? MPI_Isend(item.bytes, bytes, MPI_BYTE, item.peer, kTag, MPI_COMM_WORLD, &requests[i])
              : MPI_Irecv(item.bytes, bytes, MPI_BYTE, item.peer, kTag, MPI_COMM_WORLD, &requests[i]);
    if (code != MPI_SUCCESS) return failed(sends ? "MPI_Isend" : "MPI_Irecv", code);
  }
  return wait_for_all(keep_waiting, context);
}

const char* progress() {
  int done = 1;
  while (!posted.empty() && done != 0) {
    const int code = MPI_Test(&posted.front().request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return failed("MPI_Test", code);
    if (done != 0) posted.pop_front();
  }
  return nullptr;
}

const char* post(const SluiceTransfer* out) {
  if (out->size > INT_MAX) return "a message of more than 2 GiB";
  const char* bytes = static_cast<const char*>(out->bytes);
  Posted& item = posted.emplace_back();
  item.bytes.assign(bytes, bytes + out->size);
  const int code = MPI_Isend(item.bytes.data(), static_cast<int>(out->size), MPI_BYTE, out->peer, kTag,
                             MPI_COMM_WORLD, &item.request);
  if (code == MPI_SUCCESS) return progress();
  posted.pop_back();
  return failed("MPI_Isend", code);
}

// All that was posted has been received by then, or its receiver has failed and the group is not stopped in good order.
void stop() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  progress();
  MPI_Finalize();
}

constexpr SluiceMpi kPlugin{start, exchange, post, progress, stop};

}  // namespace

extern "C" __attribute__((visibility("default"))) const SluiceMpi* sluice_mpi() {
  return &kPlugin;
}
