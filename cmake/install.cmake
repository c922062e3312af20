# bin/fs finds its bundled model at ../share/fs/tiny, in the build tree as in an installed one: both can be moved.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/fs)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/golden/tiny ${CMAKE_BINARY_DIR}/share/fs/tiny SYMBOLIC)

install(TARGETS fs RUNTIME DESTINATION bin)
install(DIRECTORY golden/tiny DESTINATION share/fs)
# Shell completions and the manual lie in share/ as they are installed.
install(DIRECTORY share/ DESTINATION share)
