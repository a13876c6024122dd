/** A linter of OpenAPI documents finds nothing in the one that a running gateway serves; see redocly.yaml beside it. */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { parse } from 'yaml'
import { type ApiDocument, operationsIn } from '../support/openapi.ts'
import { PRODUCT_ENVIRONMENT } from '../support/product.ts'
import { startManagedGateway } from '../support/world.ts'

const ROOT = join(import.meta.dirname, '../..')
const LINTER = join(ROOT, 'node_modules/@redocly/cli/bin/cli.js')
const CONFIG = join(import.meta.dirname, 'redocly.yaml')
/** Runs in the linter first: whatever it would connect to is told, and fails. */
const NO_NETWORK = `
import { Socket } from 'node:net'
Socket.prototype.connect = function (...terms) {
  console.error('asks the network', JSON.stringify(terms))
  process.exit(9)
}`

interface Problem {
  readonly ruleId: string
  readonly message: string
  readonly location: readonly { readonly source: { readonly ref: string }; readonly pointer?: string }[]
}

/** Lints the files; a linter that finds something ends with an error, and says the same. */
async function lint(files: readonly string[]): Promise<{ problems: readonly Problem[]; stderr: string }> {
  const first = `data:text/javascript,${encodeURIComponent(NO_NETWORK)}`
  const words = ['--import', first, LINTER, 'lint', ...files, '--config', CONFIG, '--format', 'json']
  const run = promisify(execFile)(process.execPath, words, {
    env: { ...PRODUCT_ENVIRONMENT, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    maxBuffer: 64 * 1024 * 1024,
  })
  const { stdout, stderr } = await run.catch((error: { stdout: string; stderr: string }) => error)
  // One report for each file, one behind the other.
  const reports = stdout.split(/(?<=^\})/m).filter(text => text.trim() !== '')
  const problems = reports.flatMap(text => (JSON.parse(text) as { problems: readonly Problem[] }).problems)
  return { problems, stderr }
}

t.test('the linter finds nothing in the served document', async t => {
  const { gateway } = await startManagedGateway(t)
  const text = await (await fetch(`${gateway.url}/openapi.json`)).text()
  const broken = JSON.parse(text) as ApiDocument
  const [first, second, third] = operationsIn(broken).map(({ operation }) => operation)
  if (first === undefined || second === undefined || third === undefined) throw new Error('no operations')
  delete (first as Partial<typeof first>).summary
  second.responses['200'] = { $ref: '#/components/responses/Nowhere' }
  third.operationId = second.operationId
  const folder = t.testdir({ 'openapi.json': text, 'broken.json': JSON.stringify(broken) })
  const { problems, stderr } = await lint([join(folder, 'openapi.json'), join(folder, 'broken.json')])
  t.notMatch(stderr, 'asks the network')
  const [inServed, inBroken] = ['openapi.json', 'broken.json'].map(name =>
    problems.filter(({ location }) => location[0]?.source.ref.endsWith(name)),
  )
  t.same(inServed, [])
  const found = new Set(inBroken?.map(({ ruleId }) => ruleId))
  for (const rule of ['operation-summary', 'no-unresolved-refs', 'operation-operationId-unique'])
    t.ok(found.has(rule), `${rule} finds what is broken`)
})

t.test('no recommended rule is switched off or softened', async t => {
  const { extends: bases, rules } = parse(readFileSync(CONFIG, 'utf8')) as {
    extends: string[]
    rules: Record<string, string>
  }
  t.same(bases, ['recommended-strict'])
  for (const [rule, severity] of Object.entries(rules)) t.equal(severity, 'error', rule)
})
