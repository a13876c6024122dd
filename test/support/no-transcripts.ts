/** What a table of operations needs for resumable streams where none is asked for. */
const notRun = (): never => {
  throw new Error('not run')
}

export const NO_TRANSCRIPTS = {
  transcripts: { open: notRun, read: notRun },
  resumeWindowMs: 120_000,
} as const
