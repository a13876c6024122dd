/** The switch of the suites that run tests once more on the front of `node:http`. */

/** Set before the tests are imported. */
export const TEST_FRONT = process.env['TEST_FRONT'] === 'node' ? 'node' : 'auto'
