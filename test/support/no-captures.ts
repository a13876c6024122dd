/** A stub of captures for operation tables in tests that do not use them. */
export const NO_CAPTURES = {
  captures: { running: null, maxBytes: 65_536, folder: '/nowhere' },
}
