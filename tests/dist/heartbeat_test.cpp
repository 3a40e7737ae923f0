#include "dist/heartbeat.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

namespace sluice::dist {
namespace {

using namespace std::chrono_literals;

constexpr HeartbeatTiming kTiming{.silence =
                                      1s};  // a busy machine may leave a thread without a core for some of it

bool within(Clock::duration span, const std::function<bool()>& condition) {
  for (const TimePoint end = Clock::now() + span; Clock::now() < end; std::this_thread::sleep_for(5ms))
    if (condition()) return true;
  return condition();
}

// A rank that says who it is, and nothing more.
int silent_rank(const HeartbeatAddress& leader, int32_t rank, uint64_t token) {
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(leader.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  char hello[12];
  std::memcpy(hello, &token, sizeof token);
  std::memcpy(hello + sizeof token, &rank, sizeof rank);
  EXPECT_EQ(send(made, hello, sizeof hello, MSG_NOSIGNAL), 12);
  return made;
}

TEST(Heartbeat, RanksThatLiveAndThoseThatTakeLeaveAreNotLost) {
  const auto leader = Heartbeat::lead(3, kTiming);
  ASSERT_TRUE(leader);
  auto first = Heartbeat::follow(1, (*leader)->address(), kTiming),
       second = Heartbeat::follow(2, (*leader)->address(), kTiming);
  ASSERT_TRUE(first && second);
  std::this_thread::sleep_for(3 * kTiming.silence);
  EXPECT_FALSE((*leader)->lost());
  EXPECT_FALSE((*first)->lost());
  first->reset();
  std::this_thread::sleep_for(2 * kTiming.silence);
  EXPECT_FALSE((*leader)->lost());
  EXPECT_FALSE((*second)->lost());
}

TEST(Heartbeat, ARankThatIsSilentIsLost) {
  const auto leader = Heartbeat::lead(2, kTiming);
  ASSERT_TRUE(leader);
  const int rank = silent_rank((*leader)->address(), 1, (*leader)->address().token);
  EXPECT_TRUE(within(60s, [&] { return (*leader)->lost().has_value(); }));
  ASSERT_TRUE((*leader)->lost());
  EXPECT_EQ((*leader)->lost()->rank, 1);
  EXPECT_EQ((*leader)->lost()->how, "hangs: it was not heard of for 1 s");
  close(rank);
}

TEST(Heartbeat, ARankWhoseConnectionBreaksIsLostAtOnce) {
  const auto leader = Heartbeat::lead(3, {.silence = 1h});
  ASSERT_TRUE(leader);
  const auto other = Heartbeat::follow(2, (*leader)->address(), {.silence = 1h});
  ASSERT_TRUE(other);
  close(silent_rank((*leader)->address(), 1, (*leader)->address().token));
  EXPECT_TRUE(within(60s, [&] { return (*leader)->lost().has_value(); }));
  ASSERT_TRUE((*leader)->lost());
  EXPECT_EQ((*leader)->lost()->rank, 1);
  EXPECT_EQ((*leader)->lost()->how, "has ended");
}

TEST(Heartbeat, StrangersCountForNothing) {
  const auto leader = Heartbeat::lead(2, kTiming);
  ASSERT_TRUE(leader);
  const int stranger = silent_rank((*leader)->address(), 1, (*leader)->address().token + 1);
  const auto rank = Heartbeat::follow(1, (*leader)->address(), kTiming);
  EXPECT_TRUE(rank);
  std::this_thread::sleep_for(2 * kTiming.silence);
  EXPECT_FALSE((*leader)->lost());
  close(stranger);
}

TEST(Heartbeat, NobodyThereIsAnErrorWithThePort) {
  HeartbeatAddress address;
  address.port = 1;
  std::strcpy(address.hosts[0], "127.0.0.1");
  const auto rank = Heartbeat::follow(3, address, kTiming);
  ASSERT_FALSE(rank);
  EXPECT_EQ(rank.error().message, "rank 3 finds no way to rank 0, port 1 of 127.0.0.1");
}

}  // namespace
}  // namespace sluice::dist
