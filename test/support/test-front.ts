/** The switch for the suites that run tests again on the front of `node:http`. */

/** Set before the tests are imported. */
export const TEST_FRONT = process.env['TEST_FRONT'] === 'node' ? 'node' : 'auto'
