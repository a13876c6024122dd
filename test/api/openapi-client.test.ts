/**
 * A typed client out of the document of a running gateway: the generator takes it, the compiler takes the client with
 * strict types, and a caller reaches every operation by it. So does the program of docs/openapi.md.
 */
import { execFile } from 'node:child_process'
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { endBatch } from '../support/batch-calls.ts'
import { type ApiDocument, operationsIn } from '../support/openapi.ts'
import { PRODUCT_ENVIRONMENT } from '../support/product.ts'
import { startManagedGateway } from '../support/world.ts'

const ROOT = join(import.meta.dirname, '../..')
const MODULES = join(ROOT, 'node_modules')
/** A package of its own, since it brings many; where everything has to run, missing it is a failure. */
const GENERATOR = join(ROOT, 'scripts/generator/node_modules/swagger-typescript-api/dist/cli.mjs')
const without =
  existsSync(GENERATOR) || process.env['CI'] === 'true'
    ? false
    : 'npm ci --prefix scripts/generator installs the generator'
const COMPILER = join(MODULES, 'typescript/bin/tsc')
const CALLER = join(ROOT, 'test/fixtures/client/caller.ts')
const execute = promisify(execFile)
/** Runs a program for Node, without the hooks of the test runner, which the compiler does not take. */
const run = (words: readonly string[], cwd: string, environment: Readonly<Record<string, string>> = {}) =>
  execute('env', ['-u', 'NODE_OPTIONS', process.execPath, ...words], {
    cwd,
    env: { ...PRODUCT_ENVIRONMENT, ...environment },
  })

/** The fenced blocks of the page, by their language. */
function blocksOf(language: string): string[] {
  const page = readFileSync(join(ROOT, 'docs/openapi.md'), 'utf8')
  return [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, each, text = '']) =>
    each === language ? [text] : [],
  )
}

/** Its only way to be wrong unseen: the generator asks the compiler to leave the client unchecked. */
function unmute(file: string): void {
  const text = readFileSync(file, 'utf8')
  const checked = text.replace('// @ts-nocheck\n', '')
  if (checked === text) throw new Error('the generator wrote no @ts-nocheck')
  writeFileSync(file, checked)
}

const CONFIG = {
  compilerOptions: {
    strict: true,
    noUncheckedIndexedAccess: true,
    target: 'es2024',
    lib: ['es2024', 'dom', 'dom.iterable'],
    module: 'nodenext',
    rewriteRelativeImportExtensions: true,
    types: ['node'],
    typeRoots: [join(MODULES, '@types')],
    skipLibCheck: true,
    outDir: 'out',
  },
  files: ['caller.ts', 'program.ts'],
}

/** The gateway of this test has no routes, so they answer 404. */
const OF_ROLLOUTS = new Set(['getRollout', 'advanceRollout', 'holdRollout', 'rollbackRollout'])

t.test('a generated client reaches every operation', { skip: without }, async t => {
  const { gateway } = await startManagedGateway(t, {
    capture: { enabled: true },
    // Nobody listens there.
    providers: [{ slug: 'mistral', baseUrl: 'http://127.0.0.1:1/v1' }],
  })
  const { url, apiKey, managementKey, shipper, storageUrl } = gateway
  const text = await (await fetch(`${url}/openapi.json`)).text()
  const [program = ''] = blocksOf('ts')
  const folder = t.testdir({
    'openapi.json': text,
    'program.ts': program,
    'package.json': '{"type":"module"}',
    'tsconfig.json': JSON.stringify(CONFIG),
  })
  cpSync(CALLER, join(folder, 'caller.ts'))

  // As the page says, but for where the document comes from and goes to.
  const [, words = ''] = /npx swagger-typescript-api (generate .*)/.exec(blocksOf('console').join('')) ?? []
  t.match(words, /^generate -p openapi\.json /, 'the page has the command')
  await run([GENERATOR, ...words.trim().split(' ')], folder)
  unmute(join(folder, 'sluice.ts'))
  const compiled = await run([COMPILER, '-p', folder], folder).catch(
    (error: { stdout: string; stderr: string }) => error,
  )
  t.equal(compiled.stdout + compiled.stderr, '', 'the compiler is content')

  const operations = operationsIn(JSON.parse(text) as ApiDocument).map(({ method, path, operation }) => ({
    id: operation.operationId,
    method,
    pattern: new RegExp(`^${path.replace(/\{\w+\}/g, '[^/]+')}$`),
    braces: path.split('{').length,
  }))
  const reached = new Set<string>()
  const watched: typeof fetch = async (input, init) => {
    const reply = await fetch(input, init)
    const path = new URL(String(input)).pathname.replace(/^\/v1\//, '/')
    // Of several, the one with the fewest parameters: /models/count is no model.
    const [found] = operations
      .filter(({ method, pattern }) => method === init?.method && pattern.test(path))
      .sort((a, b) => a.braces - b.braces)
    if (found !== undefined && (reply.ok || (reply.status === 404 && OF_ROLLOUTS.has(found.id))))
      reached.add(found.id)
    return reply
  }
  const { callAll } = (await import(pathToFileURL(join(folder, 'out/caller.js')).href)) as {
    callAll(terms: object): Promise<void>
  }
  const settle = async () => void (await shipper.ship())
  const resultOf = () => ({
    id: 'batch_req_1',
    response: { status_code: 200, request_id: 'gen-1', body: {} },
    error: null,
  })
  try {
    await callAll({
      baseUrl: url,
      apiKey,
      managementKey,
      fetch: watched,
      settle,
      endBatch: (id: string) => endBatch(storageUrl, id, { resultOf }),
    })
  } catch (thrown) {
    // A failed call throws the answer.
    t.fail(thrown instanceof Response ? `${thrown.status} ${thrown.url}` : String(thrown), {
      thrown: (thrown as { error?: unknown }).error ?? thrown,
    })
  }
  for (const { id } of operations) t.ok(reached.has(id), `${id}: call it in test/fixtures/client/caller.ts`)

  const { stdout } = await run(['out/program.js'], folder, { URL: url.replace('/v1', ''), KEY: apiKey })
  t.equal(stdout, 'sim/echo completed\nHello\n', 'the program of the page')
})
