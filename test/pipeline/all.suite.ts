import { importTests } from '../support/suite.ts'

await importTests(import.meta.dirname)
