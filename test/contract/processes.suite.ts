import { importTests } from '../support/suite.ts'
import { PROCESS_FILES } from './processes.ts'

await importTests(import.meta.dirname, file => PROCESS_FILES.includes(file))
