# Kernels for one instruction set are one file with flags of its own; src/cpu/isa.cpp chooses among them at run time.
# Where the processor family is another, the file is left out.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(src/cpu/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
else()
  set_source_files_properties(src/cpu/kernels_avx2.cpp PROPERTIES HEADER_FILE_ONLY TRUE)
endif()
