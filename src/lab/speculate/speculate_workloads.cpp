// The prompts of `sluice bench speculate`.
#include "lab/speculate/speculate_bench.h"

namespace sluice::lab {

namespace {

constexpr std::string_view kMinutes =
    "The committee shall publish the minutes of every meeting within five working days. Members who cannot "
    "attend shall "
    "name a deputy. The chair may invite guests, who have no vote. Decisions need a majority of the members "
    "that are "
    "present; where votes are equal, the chair decides. ";

// Long enough for an answer of 128 tokens to lie within its edited copy.
constexpr std::string_view kRules =
    "The chair opens every meeting. The chair may invite guests, who have no vote. The chair calls the "
    "speakers in the "
    "order in which they raised their hands. A member who speaks for more than five minutes may be asked to "
    "come to an "
    "end. Decisions need a majority of the members that are present; where votes are equal, the chair "
    "decides. Votes on "
    "persons are secret. The treasurer reports on the accounts twice a year, in March and in October. Two "
    "members who do "
    "not belong to the board examine the accounts before the report of October. The minutes are kept by the "
    "secretary, "
    "signed by the chair and sent to all members within five working days. Members who cannot attend shall "
    "name a deputy. "
    "The library is open to members on every working day from nine to five. Books are lent for four weeks. ";
constexpr std::string_view kEdited =
    "The president opens every meeting. The president may invite guests, who have no vote. The president "
    "calls the "
    "speakers in the order in which they raised their hands. A member";

constexpr std::string_view kCode =
    "def area(width, height):\n    return width * height\n\n"
    "def volume(width, height, depth):\n    return area(width, height) * depth\n\n"
    "def describe(box):\n    size = volume(box.width, box.height, box.depth)\n"
    "    return f\"{box.name}: {size} cubic metres\"\n\n";

std::string text(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out += part;
  return out;
}

}  // namespace

std::vector<SpeculateWorkload> speculate_workloads() {
  return {
      {"repeat",
       {text({"Repeat this text word for word:\n", kMinutes, "\nThe text again:\n", kMinutes,
              "\nAnd once more:\n", kMinutes.substr(0, 60)})}},
      {"edit",
       {text({"The rules:\n", kRules, "\n\nThe same rules, with 'chair' replaced by 'president':\n",
              kEdited})}},
      {"summarise",
       {text(
           {"Minutes:\n", kMinutes, kMinutes, "\nSummary of the rules, in the words of the minutes:\n- "})}},
      {"repeat code",
       {text({"# boxes.py\n", kCode, "# boxes.py, the same file with type hints\n", kCode,
              "# boxes.py, the same file once more\ndef area("})}},
      {"code",
       {"# Python: a class for a binary search tree with insert, find and remove\nclass Node:\n",
        "// C: reverses a linked list in place\nstruct node *reverse(struct node *head) {\n",
        "# Python: reads a CSV file and prints the mean of each column\nimport csv\n\n",
        "function debounce(callback, milliseconds) {\n"}},
      {"chat",
       {"Once upon a time there was a fisherman who",
        "Question: What is the capital of France, and what is it known for?\nAnswer:",
        "Dear Sir or Madam,\nI am writing to complain about",
        "The three most important things to know about baking bread are",
        "User: My bicycle makes a noise when I brake. What should I do?\nAssistant:",
        "In 1969 the first people landed on the moon. The mission", "Recipe for a simple tomato soup:\n",
        "A short poem about the sea in autumn:\n"}},
  };
}

}  // namespace sluice::lab
