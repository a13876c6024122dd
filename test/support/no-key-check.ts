/** A stub of key checks for operation tables in tests that do not use them. */

function notRun(): never {
  throw new Error('not run')
}

export const NO_KEY_CHECK = { keyCheck: { enter: notRun, prepare: notRun, run: notRun } }
