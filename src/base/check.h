// Checks of our own invariants. A broken one prints both sides and aborts; input from outside never
// reaches them (see result.h). They stay on in every build.
#pragma once

#include <sstream>
#include <string>

namespace sluice::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& sides);

template <class A, class B>
[[noreturn]] void check_pair_failed(const char* file, int line, const char* expression, const A& a,
                                    const B& b) {
  std::ostringstream sides;
  sides << a << " vs " << b;
  check_failed(file, line, expression, sides.str());
}

}  // namespace sluice::detail

#define SLUICE_CHECK(condition)           \
  (static_cast<bool>(condition) ? void(0) \
                                : ::sluice::detail::check_failed(__FILE__, __LINE__, #condition, ""))

#define SLUICE_CHECK_OP_(a, op, b)                                                                      \
  do {                                                                                                  \
    const auto& sluice_a_ = (a);                                                                        \
    const auto& sluice_b_ = (b);                                                                        \
    if (!(sluice_a_ op sluice_b_))                                                                      \
      ::sluice::detail::check_pair_failed(__FILE__, __LINE__, #a " " #op " " #b, sluice_a_, sluice_b_); \
  } while (false)

#define SLUICE_CHECK_EQ(a, b) SLUICE_CHECK_OP_(a, ==, b)
#define SLUICE_CHECK_NE(a, b) SLUICE_CHECK_OP_(a, !=, b)
#define SLUICE_CHECK_LE(a, b) SLUICE_CHECK_OP_(a, <=, b)
#define SLUICE_CHECK_LT(a, b) SLUICE_CHECK_OP_(a, <, b)
#define SLUICE_CHECK_GE(a, b) SLUICE_CHECK_OP_(a, >=, b)
#define SLUICE_CHECK_GT(a, b) SLUICE_CHECK_OP_(a, >, b)
