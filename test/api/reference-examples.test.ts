/** Requests of the reference page: each command runs as it is copied, each program is one in its language. */
import { execFile, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  LANGUAGES,
  type PlacedOperation,
  READER_URL,
  requestExamples,
} from '../../src/api/openapi/reference/examples.ts'
import { startGateway } from '../support/gateway.ts'
import { type ApiDocument, operationsIn } from '../support/openapi.ts'
import { share } from '../support/share.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())
const url = gateway.url.replace('/v1', '')
const document = (await (await fetch(`${gateway.url}/openapi.json`)).json()) as ApiDocument
const all = operationsIn(document)

const exampleOf = (placed: (typeof all)[number], language: (typeof LANGUAGES)[number]): string =>
  requestExamples(placed as unknown as PlacedOperation)[language].replaceAll(READER_URL, url)

/** What a reader has in the environment. */
const environment = {
  PATH: process.env['PATH'] ?? '',
  KEY: gateway.apiKey,
  MANAGEMENT_KEY: gateway.managementKey,
  ID: 'gen-1',
  HASH: 'a'.repeat(64),
  REF: 'ws_default',
  USER: 'acme%2Fjane',
  AUTHOR: 'sim',
  SLUG: 'echo',
  MODEL: 'sim%2Fecho',
}

t.test('every curl command is answered as its operation says, and none as a bad request', async t => {
  const folder = t.testdir({ 'notes.txt': 'The bicycle shed is painted ochre.' })
  for (const placed of share(all, 4)) {
    const { operationId, responses } = placed.operation
    const command = exampleOf(placed, 'curl').replace(
      /^curl/,
      "curl -s -o /dev/null -w '%{http_code}' --max-time 60",
    )
    const status = await new Promise<string>(resolve =>
      execFile('bash', ['-c', command], { cwd: folder, env: environment }, (_, stdout) =>
        resolve(stdout.trim()),
      ),
    )
    t.ok(status in responses, `${operationId}: ${status}`)
    // A name that is not there is one of the reader's own; a form that is wrong would be ours.
    if (!placed.path.includes('{') && !['400', '403', '404', '409', '503'].includes(status))
      t.match(status, /^2/, `${operationId}: ${status}\n${command}`)
    if (status === '400') t.comment(`${operationId}: 400`)
  }
})

t.test('every program in JavaScript can be parsed', async t => {
  const folder = t.testdir({})
  for (const placed of all)
    writeFileSync(join(folder, `${placed.operation.operationId}.mjs`), exampleOf(placed, 'javascript'))
  const check = `import { readdirSync, readFileSync } from 'node:fs'
import { SourceTextModule } from 'node:vm'
for (const name of readdirSync('.')) if (name.endsWith('.mjs') && name !== 'check.mjs')
  new SourceTextModule(readFileSync(name, 'utf8'), { identifier: name })`
  writeFileSync(join(folder, 'check.mjs'), check)
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--experimental-vm-modules', '--no-warnings', 'check.mjs'],
    { cwd: folder, encoding: 'utf8' },
  )
  t.equal(status, 0, stderr)
})

const hasPython = spawnSync('python3', ['--version']).status === 0
t.test(
  'every program in Python can be parsed',
  { skip: hasPython ? false : 'there is no python3' },
  async t => {
    const programs = all.map(placed => [placed.operation.operationId, exampleOf(placed, 'python')])
    const check = 'import ast, json, sys\nfor name, text in json.load(sys.stdin): ast.parse(text, name)'
    const { status, stderr } = spawnSync('python3', ['-c', check], {
      input: JSON.stringify(programs),
      encoding: 'utf8',
    })
    t.equal(status, 0, stderr)
  },
)

t.test('the languages have the same values', async t => {
  const key = all.find(({ operation }) => operation.operationId === 'createKey')
  if (key === undefined) throw new Error('no such operation')
  for (const language of LANGUAGES) t.match(exampleOf(key, language), '"limit_reset"')
  t.match(exampleOf(key, 'python'), 'f"Bearer {os.environ[\'MANAGEMENT_KEY\']}"')
})
