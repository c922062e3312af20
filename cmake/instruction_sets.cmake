# Kernels for one instruction set have files with flags of their own; src/cpu/isa.cpp chooses among them at run time.
# Where the processor family is another, the files are left out.
file(GLOB avx2 CONFIGURE_DEPENDS src/cpu/kernels_avx2*.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
else()
  set_source_files_properties(${avx2} PROPERTIES HEADER_FILE_ONLY TRUE)
endif()
