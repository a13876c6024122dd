/** A stub for operation tables in tests without resumable streams. */
const notRun = (): never => {
  throw new Error('not run')
}

export const NO_TRANSCRIPTS = {
  transcripts: { open: notRun, read: notRun },
  resumeWindowMs: 120_000,
} as const
