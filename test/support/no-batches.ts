/** What a table of operations needs for batches where none is made. */
export const NO_BATCHES = {
  acceptances: {
    accept() {
      throw new Error('not run')
    },
  },
  batchMaxBytes: 1_024,
} as const
