// Who gets a place, and who gives one up: the table alone, and a server under connections that say nothing.
#include "server/core/connection_table.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "tests/server/rig.h"

namespace sluice::server {
namespace {

std::optional<uint64_t> leaving(const std::optional<ConnectionTable::Place>& place) {
  EXPECT_TRUE(place);
  return place ? place->leaving : std::nullopt;
}

TEST(ConnectionTable, AnAddressTakesFromItself) {
  ConnectionTable table({.all = 6, .of_address = 2});
  EXPECT_EQ(leaving(table.take("a")), std::nullopt);
  EXPECT_EQ(leaving(table.take("a")), std::nullopt);
  EXPECT_EQ(leaving(table.take("b")), std::nullopt);
  EXPECT_EQ(leaving(table.take("a")), 1u) << "its longest idle gives way";
  EXPECT_EQ(leaving(table.take("a")), 2u);
  EXPECT_EQ(leaving(table.take("b")), std::nullopt) << "others have their places";
}

TEST(ConnectionTable, WorkGivesNoWay) {
  ConnectionTable table({.all = 3, .of_address = 2});
  for (const char* address : {"a", "a", "b"}) ASSERT_TRUE(table.take(address));
  table.busy(1);
  EXPECT_EQ(leaving(table.take("c")), 2u) << "the longest idle of all";
  table.busy(3);
  table.busy(4);
  EXPECT_FALSE(table.take("d")) << "nobody is idle";
  table.idle(3);
  table.idle(1);
  EXPECT_EQ(leaving(table.take("d")), 3u) << "idle since longer than 1";
}

TEST(ConnectionTable, ARequestThatCameMeanwhileKeepsItsPlace) {
  ConnectionTable table({.all = 1, .of_address = 1});
  ASSERT_TRUE(table.take("a"));
  EXPECT_EQ(leaving(table.take("b")), 1u);
  table.busy(1);
  table.busy(2);
  EXPECT_FALSE(table.take("c"));
  table.leave(1);
  EXPECT_FALSE(table.take("c")) << "there were two on one place";
  table.leave(2);
  EXPECT_EQ(leaving(table.take("c")), std::nullopt);
}

TEST(ConnectionTable, ProxiesStandForMany) {
  ConnectionTable table({.all = 4, .of_address = 1});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(leaving(table.take_uncounted()), std::nullopt);
  EXPECT_EQ(leaving(table.take_uncounted()), 1u);
}

TEST(ConnectionTable, WhoIsToldToLeaveHasLeftBeforeManyOthersCome) {
  ConnectionTable table({.all = 2, .of_address = 2});
  int taken = 0;
  while (taken < 1000 && table.take("a")) ++taken;
  EXPECT_EQ(taken, 2 + 32) << "files of those that have not closed yet are counted";
}

TEST(ConnectionTable, LatecomersAreNotAwaited) {
  ConnectionTable table({.all = 8, .of_address = 8});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.take("a"));
  table.leave(2);
  table.shut();
  ASSERT_TRUE(table.take("a"));
  EXPECT_EQ(table.awaited(), 2u);
  for (const uint64_t number : {4, 1, 3}) table.leave(number);
  EXPECT_EQ(table.awaited(), 0u);
}

TEST(Connections, WhoSaysNothingHasTheTimeOfAHeader) {
  RigOptions options;
  options.server.header_timeout = 1;
  options.server.idle_timeout = 3600;
  Rig rig(options);
  Client silent = rig.connect(), served = rig.connect();
  served.send(get("/health"));
  EXPECT_EQ(served.read_response().status, 200);
  EXPECT_TRUE(silent.at_end());
  EXPECT_FALSE(served.at_end(1500)) << "between requests there is more time";
}

TEST(Connections, TheLongestIdleGivesWay) {
  RigOptions options;
  options.server.max_connections = 8;
  options.server.address_connections = 2;
  Rig rig(options);
  Client first = rig.connect(), second = rig.connect();
  for (Client* client : {&second, &first}) {
    client->send(get("/health"));
    EXPECT_EQ(client->read_response().status, 200);
    EXPECT_TRUE(eventually([&] { return rig.metrics().requests == 0; }));
  }
  Client third = rig.connect();
  EXPECT_TRUE(second.at_end()) << "idle since longer than the first";
  third.send(get("/health"));
  EXPECT_EQ(third.read_response().status, 200);
  first.send(get("/health"));
  EXPECT_EQ(first.read_response().status, 200);
}

// 4,200 connections that send nothing, from one address. Each of them is a file here and one in the server.
std::vector<Client> flood(const Rig& rig, const char* from) {
  std::vector<Client> silent;
  silent.reserve(4200);
  for (int i = 0; i < 4200; ++i) silent.push_back(rig.connect_from(from));
  return silent;
}

bool files_for_a_flood() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max >= 10'000;
}

TEST(Connections, ASilentFloodStopsNobodyElse) {
  if (!files_for_a_flood()) GTEST_SKIP() << "this process may not open 10,000 files";
  RigOptions options;
  options.server.shutdown_timeout = 20;
  options.signals = true;
  Rig rig(options);
  const std::vector<Client> silent = flood(rig, "127.0.0.66");
  EXPECT_TRUE(silent.back().connected());
  double soonest = 1e9;  // of a few, so that what else the machine does makes no difference
  for (int i = 0; i < 5 && soonest >= 2.0; ++i) {
    const TimePoint asked = Clock::now();
    EXPECT_EQ(rig.ask_from("127.0.0.7", post(R"({"max_tokens":1})")).body, "{\"tokens\":1}");
    soonest = std::min(soonest, seconds_since(asked));
  }
  EXPECT_LT(soonest, 2.0);
  EXPECT_TRUE(eventually([&] { return rig.metrics().connections <= 2048 + 1; }))
      << "half of the places is the part of an address";
  const TimePoint told = Clock::now();
  kill(getpid(), SIGTERM);
  EXPECT_EQ(rig.server->wait(), Server::End::Drained);
  EXPECT_LT(seconds_since(told), 10.0);
}

}  // namespace
}  // namespace sluice::server
