# CUDA, compiled twice from one source: by nvcc for the card (FS_CUDA) and by the C++ compiler for the emulator, which needs
# nothing of NVIDIA's (FS_CUDA_EMULATED: `--backend cuda-emulated`, and what the tests run).
set(FS_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF, or AUTO, where nvcc is found")
set_property(CACHE FS_CUDA PROPERTY STRINGS AUTO ON OFF)

file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.cu)
file(GLOB cuda_host CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cpp)

if(FS_CUDA_EMULATED)
  # A .cu file becomes C++ by being included.
  set(emulated_kernels)
  foreach(kernel ${cuda_kernels})
    get_filename_component(name ${kernel} NAME_WE)
    file(CONFIGURE OUTPUT emulated/${name}.cpp CONTENT "#include \"${name}.cu\"\n")
    list(APPEND emulated_kernels ${CMAKE_BINARY_DIR}/emulated/${name}.cpp)
  endforeach()
  file(GLOB emulator CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/emulator/*.cpp)
  add_library(fs_cuda_emulated STATIC ${emulator} ${emulated_kernels} ${cuda_host})
  target_compile_definitions(fs_cuda_emulated PUBLIC FS_EMULATED)
  target_include_directories(fs_cuda_emulated PUBLIC ${CMAKE_SOURCE_DIR}/kernels)
  target_link_libraries(fs_cuda_emulated PUBLIC fs_model Boost::context PRIVATE fs_warnings)
  if(FS_SANITIZE MATCHES thread)
    # ThreadSanitizer watches the kernels' threads, which are fibers; the emulator that switches between them tells it how.
    target_compile_definitions(fs_cuda_emulated PUBLIC FS_EMULATOR_TSAN=1)
    set_source_files_properties(${emulator} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
endif()
