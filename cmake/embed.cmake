# Writes the source of sluice::server::embedded_files() from the files of web/:
# cmake -DFOLDER=… -DOUTPUT=… -P embed.cmake
file(GLOB paths LIST_DIRECTORIES false ${FOLDER}/*.html ${FOLDER}/*.js ${FOLDER}/*.css ${FOLDER}/*.svg)
list(SORT paths)
set(text "#include \"server/http/assets.h\"\n\nnamespace sluice::server {\n\nstd::span<const EmbeddedFile> embedded_files() {\n")
string(APPEND text "  using namespace std::string_view_literals;\n  static constexpr EmbeddedFile kFiles[] = {\n")
foreach(path IN LISTS paths)
  get_filename_component(name ${path} NAME)
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(APPEND text "      {\"${name}\"sv, \"${bytes}\"sv},\n")
endforeach()
string(APPEND text "  };\n  return kFiles;\n}\n\n}  // namespace sluice::server\n")
file(WRITE ${OUTPUT} "${text}")
