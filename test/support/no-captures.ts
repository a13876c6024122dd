/** Captures for operations that nobody asks for one. */
export const NO_CAPTURES = {
  captures: { running: null, maxBytes: 65_536, folder: '/nowhere' },
}
