# Warnings are errors on our own code. Libraries come in as system headers and are left alone.
add_library(fs_warnings INTERFACE)
target_compile_options(fs_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -Werror)

# One rounding an operation, on every machine: a fused multiply-add is written where it is wanted.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(FS_SANITIZE)
  # g++ 12 warns of std::regex's own members once they are instrumented.
  target_compile_options(fs_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FS_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${FS_SANITIZE})
endif()
