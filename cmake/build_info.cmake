# Writes the source of sluice::build_info(): cmake -DSOURCE=… -DVERSION=… -DOUTPUT=… -P build_info.cmake
set(commit "")
set(dirty false)
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(commit)
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
set(text "#include \"base/platform.h\"
#include \"base/version.h\"

namespace sluice {

const BuildInfo& build_info() {
  static constexpr BuildInfo info{\"${VERSION}\", \"${commit}\", ${dirty}, kCompiler};
  return info;
}

}  // namespace sluice
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} previous)
endif()
if(NOT "${previous}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
