# bin/fs finds its bundled model at ../share/fs/tiny, in the build tree as in an installed one: both can be moved.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/fs)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/golden/tiny ${CMAKE_BINARY_DIR}/share/fs/tiny SYMBOLIC)
# The recordings that `fs layer-diff --a golden` compares with.
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/golden ${CMAKE_BINARY_DIR}/share/fs/golden SYMBOLIC)

install(TARGETS fs RUNTIME DESTINATION bin)
install(DIRECTORY golden/tiny DESTINATION share/fs)
install(FILES golden/tiny_taps.safetensors golden/tiny-odd_taps.safetensors golden/qwen3-0.6b-synthetic.safetensors
        DESTINATION share/fs/golden)
# Shell completions and the manual lie in share/ as they are installed.
install(DIRECTORY share/ DESTINATION share)
