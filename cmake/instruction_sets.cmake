# Kernels for one instruction set have files with flags of their own; src/cpu/isa.cpp chooses among them at run time.
# Where the processor family is another, the files are left out.
file(GLOB avx2 CONFIGURE_DEPENDS src/cpu/kernels_avx2*.cpp)
file(GLOB avx512 CONFIGURE_DEPENDS src/cpu/kernels_avx512*.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  # Compilers that know several widths prefer the smaller registers unless they are told.
  set(flags "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mfma;-mf16c;-mprefer-vector-width=512")
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND flags -Wno-uninitialized -Wno-maybe-uninitialized)  # g++ 12 finds them in its own header (its bug 105593)
  endif()
  set_source_files_properties(${avx512} PROPERTIES COMPILE_OPTIONS "${flags}")
  set_source_files_properties(src/cpu/kernels_avx512_bf16.cpp PROPERTIES COMPILE_OPTIONS "${flags};-mavx512bf16")
else()
  set_source_files_properties(${avx2} ${avx512} PROPERTIES HEADER_FILE_ONLY TRUE)
endif()
