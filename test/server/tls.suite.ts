/** The tests of the front end that speak over sockets once more, over TLS: framing, streams, slow readers, aborts. */
import { importTests } from '../support/suite.ts'

const WANTED = ['framing', 'http', 'leaving', 'lingering', 'operations', 'outcome', 'overload']

process.env['TEST_OVER_TLS'] = '1'
await importTests(import.meta.dirname, file => WANTED.includes(file.replace('.test.ts', '')))
