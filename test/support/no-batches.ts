/** A stub for operation tables in tests without batches. */
export const NO_BATCHES = {
  acceptances: {
    accept() {
      throw new Error('not run')
    },
  },
  batchMaxBytes: 1_024,
} as const
