import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import t from 'tap'
import { escapeAttempts } from '../../support/escape-attempts.ts'
import {
  OTHER,
  OWNER,
  type SandboxWorld,
  SIGNAL,
  sandboxWorld,
  shell,
  startCanary,
  TERMS,
  withoutEngine,
} from '../../support/sandbox.ts'

const ROOT = resolve(import.meta.dirname, '../../..')
/** Attempts that share one process; each has a new shell or interpreter. */
const TOGETHER = 4

for (const engine of ['embedded', 'bubblewrap'] as const) {
  const skip = await withoutEngine(engine)
  t.test(`no code gets out of the engine ${engine}`, { skip }, async t => {
    const canary = await startCanary()
    const world = sandboxWorld({ engine, timeoutMs: 50_000, cpuSeconds: 60 })
    t.teardown(() => canary.close())
    t.teardown(() => world.close())
    const attempts = escapeAttempts(canary, ROOT)
    t.ok(attempts.length >= 60, `${attempts.length} attempts`)
    const forbidden = [canary.secret, 'ESCAPED', ROOT, canary.folder.replace('/tmp/', ' /tmp/')]
    let ran = 0
    for (let from = 0; from < attempts.length; from += TOGETHER) {
      const some = attempts.slice(from, from + TOGETHER)
      const { outputs, notice } = await world.run(some.map(({ code }) => code))
      t.equal(notice, null)
      t.equal(outputs.length, some.length)
      for (const [at, { stdout }] of outputs.entries()) {
        ran++
        const name = some[at]?.name ?? ''
        const found = forbidden.filter(word => stdout.includes(word))
        if (found.length > 0 || canary.reached().length > 0) t.fail(`${name}: ${stdout} ${canary.reached()}`)
      }
    }
    t.same(canary.reached(), [], 'nothing outside was touched')
    t.equal(ran, attempts.length)
    t.comment(`${engine}: ${ran}/${attempts.length} attempts stayed inside`)
    t.equal(Reflect.get({}, 'polluted'), undefined)
    t.not(readFileSync('/proc/sys/kernel/hostname', 'utf8').trim(), 'sandboxed')
  })

  t.test(`no workspace reaches the containers of another in the engine ${engine}`, { skip }, async t => {
    const world = sandboxWorld({ engine })
    t.teardown(() => world.close())
    const { containers } = world
    const { id } = await containers.open(OWNER, null, TERMS)
    await containers.write(OWNER, id, 'secret.txt', Buffer.from('canary-own'))
    await containers.open(OWNER, 'notes', TERMS)
    await containers.write(OWNER, 'notes', 'secret.txt', Buffer.from('canary-named'))
    let refused = 0
    const gone = async (work: Promise<unknown>): Promise<void> => {
      await t.rejects(work, { code: 'not_found' })
      refused++
    }
    const guesses = [
      id,
      `./${id}`,
      `../ws-a/${id}`,
      `["org-a","ws-a"]\n${id}`,
      id.toLowerCase(),
      '__proto__',
      'constructor',
      '',
    ]
    for (const guess of guesses) {
      await gone(containers.read(OTHER, guess, 'secret.txt'))
      await gone(containers.list(OTHER, guess))
      await gone(containers.write(OTHER, guess, 'x', Buffer.from('x')))
      await gone(
        containers.run(
          OTHER,
          guess,
          { codes: [shell('cat secret.txt')], timeoutMs: null, maxOutputLength: null },
          SIGNAL,
        ),
      )
      await containers.end(OTHER, guess)
    }
    await gone(containers.open(OTHER, id, TERMS))
    await gone(containers.open({ ...OWNER, workspaceId: null }, id, TERMS))
    await gone(containers.open({ ...OWNER, organizationId: 'org-b' }, id, TERMS))
    await gone(containers.open(OWNER, `${id}\n`, TERMS))
    t.same(
      await containers.open(OTHER, 'notes', TERMS),
      { id: 'notes', isNew: true },
      'a name is free in another workspace',
    )
    t.same(await containers.list(OTHER, 'notes'), [])
    t.match(await readText(world, id), 'canary-own', 'the owner still has it')
    t.comment(`${engine}: ${refused}/${refused} foreign calls refused`)
  })

  t.test(`paths of files stay below the folder of files in the engine ${engine}`, { skip }, async t => {
    const canary = await startCanary()
    const world = sandboxWorld({ engine })
    t.teardown(() => canary.close())
    t.teardown(() => world.close())
    const { containers } = world
    const { id } = await containers.open(OWNER, null, TERMS)
    const setUp = `ln -s ${canary.folder} d; ln -s ${canary.file} l; ln -s / r; mkdir o; mkfifo o/p; echo x > o/f`
    await containers.run(OWNER, id, { codes: [shell(setUp)], timeoutMs: null, maxOutputLength: null }, SIGNAL)
    const below = canary.folder.slice(1)
    const paths = [
      canary.file,
      `..${canary.file}`,
      `../../../../../..${canary.file}`,
      `/mnt/data/../..${canary.file}`,
      'l',
      'd/secret.txt',
      `r/${below}/secret.txt`,
      `o/../../..${canary.file}`,
      `o/./../l`,
      'o/p',
      'o',
      '',
      '.',
      '..',
      '/',
      '/mnt/data',
      'a\0b',
      '\ud800',
      `./d/./secret.txt`,
      '/proc/self/environ',
      'r/proc/self/environ',
      '__proto__',
      'constructor/name',
      'x'.repeat(300),
    ]
    for (const path of paths) t.equal(await containers.read(OWNER, id, path), null, JSON.stringify(path))
    const targets = [
      'd/made',
      `../made`,
      `${canary.folder}/made`,
      `r/${below}/made`,

      '..',
      'a\0b',

      'o',
    ]
    for (const path of targets)
      await t.rejects(containers.write(OWNER, id, path, Buffer.from('x')), JSON.stringify(path))
    t.same(canary.reached(), [])
    t.match(Buffer.from((await containers.read(OWNER, id, '/mnt/data/o/./f')) ?? []).toString(), 'x')
    t.ok((await containers.list(OWNER, id)).every(({ path }) => ['o/f', 'o/p', 'l'].includes(path)))
    t.comment(
      `${engine}: ${paths.length + targets.length}/${paths.length + targets.length} paths stayed inside`,
    )
  })
}

async function readText({ containers }: SandboxWorld, id: string): Promise<string> {
  return Buffer.from((await containers.read(OWNER, id, 'secret.txt')) ?? []).toString()
}
