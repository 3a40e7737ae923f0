#include <gtest/gtest.h>

#include "api/lab/planner.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

std::string body_of(const Reply& reply) {
  const auto* answer = std::get_if<Answer>(&reply);
  return answer == nullptr ? "no answer" : answer->body;
}

TEST(Lab, AsksThePlannerOfTheModel) {
  Rig rig;
  EXPECT_EQ(body_of(rig.post("/api/lab/plan", R"({"batch": 8, "context": 512, "weights": "Q4_K"})")),
            R"({"batch":8,"context":512,"weights":"Q4_K"})");
  const auto error = std::get<ApiError>(rig.post("/api/lab/plan", R"({"device": "abacus"})"));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.message, "unknown device 'abacus'");
  EXPECT_NE(rig.refusal("/api/lab/plan", R"({"batch": 0})"), "accepted");
  EXPECT_NE(rig.refusal("/api/lab/plan", R"({"model": "nobody"})"), "accepted");
  rig.models[0].planner = nullptr;
  EXPECT_EQ(std::get<ApiError>(rig.post("/api/lab/plan", "{}")).status, 501);
}

TEST(Lab, PlaysRecordedRequestsWithinLimits) {
  Rig rig;
  EXPECT_EQ(body_of(rig.post("/api/lab/schemes", R"({"requests": [[0, 10, 2], [0.5, 20, 4]]})")),
            R"({"requests":2,"tokens":36,"last":0.5})");
  for (const char* bad :
       {R"({})", R"({"requests": []})", R"({"requests": [7]})", R"({"requests": [[0, 1]]})",
        R"({"requests": [["a", 1, 1]]})", R"({"requests": [[0, 0, 1]]})", R"({"requests": [[-1, 1, 1]]})",
        R"({"requests": [[0, 1.5, 1]]})", R"({"requests": [[0, 20000, 1], [0, 20000, 1]]})"})
    EXPECT_EQ(std::get<ApiError>(rig.post("/api/lab/schemes", bad)).status, 400) << bad;
  std::string many = R"({"requests": [[0, 1, 1])";
  for (int i = 0; i < kMostPlayed; ++i) many += ",[0, 1, 1]";
  EXPECT_EQ(std::get<ApiError>(rig.post("/api/lab/schemes", many + "]}")).status, 400);
}

}  // namespace
}  // namespace sluice::api
