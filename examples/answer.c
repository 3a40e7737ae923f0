/* answer MODEL PROMPT: the model's answer on stdout as it comes, the tokens of the prompt and the width of its vector on
 * stderr. Without CMake: cc answer.c $(pkg-config --cflags --libs sluice) -o answer */
#include <sluice.h>
#include <stdio.h>
#include <string.h>

static int print_text(void* user, const char* text, size_t size) {
  FILE* file = user;
  fwrite(text, 1, size, file);
  fflush(file);
  return 0; /* anything else ends the answer */
}

static int fail(const char* what, sluice_status status) {
  fprintf(stderr, "%s: error %d: %s\n", what, (int)status, sluice_error_message());
  return 1;
}

static int show_tokens(sluice_session* session, const char* prompt) {
  int32_t* tokens = NULL;
  size_t count = 0;
  char* text = NULL;
  sluice_status status = sluice_tokenize(session, prompt, NULL, &tokens, &count);
  if (status != SLUICE_OK) return fail("tokenize", status);
  status = sluice_detokenize(session, tokens, count, NULL, &text);
  sluice_free(tokens);
  if (status != SLUICE_OK) return fail("detokenize", status);
  fprintf(stderr, "%zu tokens, %s\n", count, strcmp(text, prompt) == 0 ? "and back" : "but not back");
  sluice_free(text);
  return 0;
}

static int show_vector(sluice_session* session, const char* prompt) {
  float* values = NULL;
  size_t count = 0;
  const sluice_status status = sluice_embed(session, prompt, NULL, &values, &count);
  if (status != SLUICE_OK) return fail("embed", status);
  fprintf(stderr, "%zu dimensions\n", count);
  sluice_free(values);
  return 0;
}

static int show_answer(sluice_session* session, const char* prompt) {
  const char* const options[] = {"temperature=0", "max-tokens=32", NULL};
  const sluice_output output = {print_text, stdout};
  sluice_answer answer;
  const sluice_status status = sluice_generate(session, prompt, options, &output, &answer);
  if (status != SLUICE_OK) return fail("generate", status);
  printf("\n");
  fprintf(stderr, "%d tokens in %.2f s\n", (int)answer.generated_tokens, answer.total_seconds);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "answer MODEL PROMPT (sluice %s)\n", sluice_version());
    return 2;
  }
  sluice_session* session = NULL;
  const char* const options[] = {"ctx-size=2048", NULL};
  const sluice_status status = sluice_load(argv[1], options, &session);
  if (status != SLUICE_OK) return fail("load", status);
  const int failed =
      show_tokens(session, argv[2]) || show_vector(session, argv[2]) || show_answer(session, argv[2]);
  sluice_unload(session);
  return failed;
}
