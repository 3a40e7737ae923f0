// Several models in one server, over real sockets: loaded, unloaded and loaded again while others are served.
#include "server/core/model_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "tests/server/rig.h"

namespace sluice::server {
namespace {

// What a model holds while it is loaded.
struct FakeModel {
  FakeModel(std::atomic<int>& count, const engine::EngineOptions& options)
      : alive(count), executor(options.kv_manager), engine(options, executor) {
    ++alive;
    engine.start();
  }
  ~FakeModel() {
    executor.release();
    engine.stop();
    --alive;
  }
  std::atomic<int>& alive;
  PacedExecutor executor;
  engine::Engine engine;
};

class PoolTest : public testing::Test {
 protected:
  void open(const std::vector<std::string>& names) {
    set_log_level(LogLevel::Off);
    ServerOptions options;
    options.port = 0;
    options.api_keys = {"root:r", "user:u"};
    options.admin_keys = {"root"};
    server_ = *Server::open(options, false, test_operations());
    std::vector<ModelPool::Known> known;
    for (const std::string& name : names)
      known.push_back({name, [this, name]() -> Result<Backend> {
                         if (name == "broken") return Error{ErrorCode::Corrupt, "the file is damaged"};
                         const auto model = std::make_shared<FakeModel>(alive_, sim::small_options());
                         last_ = model.get();
                         Backend backend;
                         backend.model.id = name;
                         backend.engine = &model->engine;
                         backend.owner = model;
                         return backend;
                       }});
    pool_ = std::make_unique<ModelPool>(std::move(known));
    opened_ = pool_->open_all([] { return true; });
    if (opened_) pool_->serve(*server_);
  }
  void TearDown() override {
    if (pool_) pool_->stop();
    server_.reset();
    pool_.reset();
    EXPECT_EQ(alive_, 0) << "a model was not let go";
  }

  Response ask(const std::string& request) const {
    Client client(server_->port());
    client.send(request);
    return client.read_response();
  }
  static std::string key(const char* key) { return fmt::format("Authorization: Bearer {}\r\n", key); }
  Response change(const std::string& name, const std::string& verb, const char* who = "r") const {
    return ask(post("", key(who), fmt::format("/v2/repository/models/{}/{}", name, verb)));
  }
  std::string state_of(const std::string& name) const {
    const Response answer = ask(post("{}", key("u"), "/v2/repository/index"));
    const json::array entries = parse_json(answer.body, "index")->as_array();
    for (const json::value& entry : entries)
      if (entry.at("name").as_string() == name)
        return fmt::format("{} {}", entry.at("state").as_string().c_str(),
                           entry.at("reason").as_string().c_str());
    return "unknown";
  }

  std::atomic<int> alive_{0};
  FakeModel* last_ = nullptr;  // of those that were loaded
  Status opened_;
  std::unique_ptr<ModelPool> pool_;
  std::unique_ptr<Server> server_;
};

TEST_F(PoolTest, OneThatFailsNamesItselfAndOthersServe) {
  open({"a", "broken"});
  ASSERT_TRUE(opened_.ok());
  EXPECT_EQ(ask(get("/v2/health/live")).status, 200);
  EXPECT_EQ(ask(get("/v2/health/ready")).status, 200);
  EXPECT_EQ(ask(get("/v2/models/a/ready", key("u"))).status, 200);
  EXPECT_EQ(ask(get("/v2/models/broken/ready", key("u"))).status, 503);
  const Response unknown = ask(get("/v2/models/other/ready", key("u")));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, R"({"error":"The model 'other' does not exist. This server has 'a'."})");
  EXPECT_EQ(state_of("a"), "READY ");
  EXPECT_EQ(state_of("broken"), "UNAVAILABLE could not be loaded: the file is damaged");
  const Response again = change("broken", "load");
  EXPECT_EQ(again.status, 400);
  EXPECT_EQ(again.body, R"({"error":"the file is damaged"})");
  const Response nothing = change("other", "load");
  EXPECT_EQ(nothing.status, 404);
  EXPECT_NE(nothing.body.find("there are 'a', 'broken'"), std::string::npos) << nothing.body;
}

TEST_F(PoolTest, NothingThatLoadsIsAnError) {
  open({"broken"});
  ASSERT_FALSE(opened_.ok());
  EXPECT_EQ(opened_.error().message, "the file is damaged");
}

TEST_F(PoolTest, OnlyAdminsChangeModels) {
  open({"a", "b"});
  for (const char* verb : {"load", "unload"}) {
    EXPECT_EQ(change("a", verb, "u").status, 403);
    EXPECT_EQ(change("a", verb, "wrong").status, 401);
  }
  EXPECT_EQ(state_of("a"), "READY ");
}

// A request at work keeps its model to its end; others do not find it any more; afterwards nothing of it is left.
TEST_F(PoolTest, UnloadsWhenRequestsHaveEnded) {
  open({"a"});
  FakeModel& model = *last_;
  model.executor.hold();
  Client running(server_->port());
  running.send(post(R"({"stream":true,"max_tokens":20})", key("u")));
  ASSERT_TRUE(eventually([&] { return model.engine.health().busy; }));
  Response unloaded;
  std::thread unloader([&] { unloaded = change("a", "unload"); });
  EXPECT_TRUE(eventually([&] { return state_of("a") == "UNLOADING "; }));
  EXPECT_TRUE(server_->state().models()->models.empty());
  EXPECT_EQ(alive_, 1);
  model.executor.release();
  const Response answer = running.read_response();
  unloader.join();
  EXPECT_TRUE(answer.complete);
  EXPECT_NE(answer.body.find("[DONE]"), std::string::npos) << answer.body;
  EXPECT_EQ(unloaded.status, 200) << unloaded.body;
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(change("a", "load").status, 200);
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(ask(post(R"({"max_tokens":5})", key("u"))).body, R"({"tokens":5})");
}

TEST_F(PoolTest, LoadsAndUnloadsBesideAnotherUnderLoad) {
  open({"a", "b"});
  std::atomic<bool> over{false};
  std::atomic<int> served{0}, failed{0};
  std::thread load([&] {
    while (!over) {
      const Response answer = ask(post(R"({"stream":true,"max_tokens":12})", key("u")));
      ++(answer.complete && answer.body.find("[DONE]") != std::string::npos ? served : failed);
    }
  });
  Client view(server_->port());
  view.send(get("/api/live", key("u")));
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(change("b", "unload").status, 200);
    EXPECT_EQ(alive_, 1);
    EXPECT_EQ(ask(get("/metrics", key("u"))).status, 200);
    EXPECT_EQ(change("b", "load").status, 200);
    EXPECT_EQ(alive_, 2);
  }
  EXPECT_TRUE(eventually([&] { return served > 3; }));
  over = true;
  load.join();
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace sluice::server
