/** The tests of the front end that speak over sockets once more, on the front of `node:http`. */
import { importTests } from '../support/suite.ts'

const WANTED = [
  'authorization',
  'connections',
  'drain',
  'framing',
  'server',
  'leaving',
  'lingering',
  'unknown-path',
  'operations',
  'outcome',
  'overload',
  'renewal',
  'unread',
]

process.env['TEST_FRONT'] = 'node'
await importTests(import.meta.dirname, file => WANTED.includes(file.replace('.test.ts', '')))
