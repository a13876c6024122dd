import { OutputSizes } from '../../src/api/batches/batch-outputs.ts'

/** Stands for every verb of files in tests that use none. */
const notRun = (): never => {
  throw new Error('not run')
}

export const NO_FILES = {
  files: { create: notRun, find: notRun, list: notRun, read: notRun, remove: notRun, maxFileBytes: 1_024 },
  fileUploads: { receive: notRun },
  outputSizes: new OutputSizes(),
} as const
