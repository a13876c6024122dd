/** `sluice vault` and the start check as the operator meets them: real processes on a real database. */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createVault, ownerOf } from '../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../src/providers/credentials/vault-keys.ts'
import { openStore } from '../src/storage/open.ts'
import type { CredentialRecord } from '../src/storage/store.ts'
import { startGatewayProcess } from './support/gateway-process.ts'
import { someCredential } from './support/own-keys.ts'
import { CLI, MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './support/product.ts'

const CANARY = 'sk-canary-0123456789'

const key = (id: string) => `${id}:${randomBytes(32).toString('base64')}`
const [k1, k2] = [key('k1'), key('k2')]

interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

function run(
  folder: string,
  entry: string,
  words: readonly string[],
  vaultKeys?: string,
  storageUrl?: string,
): Promise<Ended> {
  const env = {
    ...PRODUCT_ENVIRONMENT,
    GATEWAY_PORT: '0',
    GATEWAY_ADMIN_PORT: '0',
    ...(vaultKeys === undefined ? {} : { GATEWAY_VAULT_KEYS: vaultKeys }),
    ...(storageUrl === undefined ? {} : { DATABASE_URL: storageUrl }),
  }
  return new Promise(resolve => {
    const flags = [...PRODUCT_FLAGS, entry, ...words]
    // A start that is not refused would go on: it is ended, and fails the test by its code.
    execFile(process.execPath, flags, { cwd: folder, env, timeout: 30_000 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr })
    })
  })
}

/** A folder with a database of credentials that the first of these master keys wraps. */
async function installed(t: Test, vaultKeys: string, count: number) {
  const folder = t.testdir({})
  const vault = createVault(parseVaultKeys(vaultKeys))
  const store = await openStore(`sqlite:${join(folder, 'data/gateway.db')}`)
  const records: CredentialRecord[] = []
  for (let n = 0; n < count; n++)
    records.push(await store.credentials.add(someCredential(vault, `${CANARY}-${n}`)))
  await store.close()
  return { folder, records }
}

t.test('the command line wraps everything anew and tells how it stands', async t => {
  const { folder, records } = await installed(t, k1, 12)
  t.match(await run(folder, CLI, ['vault', 'status'], `${k2},${k1}`), {
    code: 0,
    stdout: 'k2\tin force\t0\nk1\tolder\t12\n',
  })
  t.match(await run(folder, CLI, ['vault', 'rotate'], `${k2},${k1}`), {
    code: 0,
    stdout: '12 credentials are now encrypted with k2\n',
    stderr: '',
  })
  t.match(await run(folder, CLI, ['vault', 'status'], k2), { code: 0, stdout: 'k2\tin force\t12\n' })
  const store = await openStore(`sqlite:${join(folder, 'data/gateway.db')}`)
  t.teardown(() => store.close())
  const vault = createVault(parseVaultKeys(k2))
  for (const [n, { organizationId, id }] of records.entries()) {
    const record = await store.credentials.find(organizationId, id)
    t.equal(record && vault.open(record.sealed, ownerOf(record)).toString(), `${CANARY}-${n}`)
  }
})

t.test('without the old master key the command changes nothing and says so', async t => {
  const { folder, records } = await installed(t, k1, 2)
  const { code, stdout, stderr } = await run(folder, CLI, ['vault', 'rotate'], k2)
  t.equal(code, 2)
  t.equal(stdout, '0 credentials are now encrypted with k2\n')
  t.match(
    stderr,
    /^sluice: 2 credentials were not re-encrypted, because no given master key decrypts them .+\n$/,
  )
  for (const { id } of records) t.match(stderr, id)
  t.match(await run(folder, CLI, ['vault', 'status'], k2), { stdout: 'k2\tin force\t0\nk1\tmissing\t2\n' })
})

t.test('a gateway does not start without a master key that its credentials need', async t => {
  const { folder } = await installed(t, k1, 3)
  const missing = await run(folder, MAIN, [], k2)
  t.equal(missing.code, 2)
  t.match(
    missing.stderr,
    /^sluice: GATEWAY_VAULT_KEYS: 3 credentials are sealed with the master key k1, which is missing there; add .*\n$/,
  )
  const wrong = await run(folder, MAIN, [], key('k1'))
  t.equal(wrong.code, 2)
  t.match(
    wrong.stderr,
    /^sluice: GATEWAY_VAULT_KEYS: none of 3 credentials opens with the master key k1: .*\n$/,
  )
  const material = [k1, k2].map(text => text.split(':')[1] ?? '')
  for (const { stdout, stderr } of [missing, wrong])
    t.notOk([CANARY, ...material].some(secret => `${stdout}${stderr}`.includes(secret)))
})

t.test('on a database that instances share no key file is made: the keys have to be given', async t => {
  const folder = t.testdir({})
  for (const [entry, words] of [
    [MAIN, []],
    [CLI, ['vault', 'status']],
  ] as const) {
    const { code, stderr } = await run(folder, entry, words, undefined, 'postgres://root@127.0.0.1:1/none')
    t.equal(code, 2)
    t.match(stderr, /^sluice: GATEWAY_VAULT_KEYS: is required with PostgreSQL, .*\n$/)
  }
  t.same(readdirSync(folder), [])
})

t.test('a lost key file is noticed, and not taken for the new one', async t => {
  const folder = t.testdir({})
  const made = await run(folder, CLI, ['vault', 'status'])
  t.match(made, { code: 0, stdout: /^k[0-9a-f]{8}\tin force\t0\n$/ })
  const path = join(folder, 'data/vault.key')
  t.equal(statSync(path).mode & 0o777, 0o600)
  const text = readFileSync(path, 'utf8').trim()
  const store = await openStore(`sqlite:${join(folder, 'data/gateway.db')}`)
  await store.credentials.add(someCredential(createVault(parseVaultKeys(text)), CANARY))
  await store.close()
  const [id] = text.split(':')
  const refused = async () => {
    const { code, stderr } = await run(folder, MAIN, [])
    t.equal(code, 2)
    t.match(stderr, `data/vault.key: 1 credential is sealed with the master key ${id}`)
  }
  writeFileSync(path, `${key('kffffffff')}\n`)
  await refused()
  rmSync(path)
  await refused()
  t.notOk(existsSync(path), 'no new key stands in for it')
  t.match(await run(folder, CLI, ['vault', 'status']), { code: 0, stdout: `${id}\tmissing\t1` })
  t.notOk(existsSync(path), 'nor after a look')
})

t.test('nothing of a key is in clear in any file of the installation', async t => {
  const { folder } = await installed(t, k1, 20)
  await run(folder, CLI, ['vault', 'rotate'], `${k2},${k1}`)
  const files = readdirSync(join(folder, 'data')).map(name => join(folder, 'data', name))
  t.ok(files.some(file => file.endsWith('gateway.db') && existsSync(file)))
  for (const file of files) t.notOk(readFileSync(file).includes('canary'), file)
})

t.test('a running gateway tells how many credentials each master key wraps', async t => {
  const { folder } = await installed(t, k1, 4)
  const gateway = await startGatewayProcess(
    t,
    {},
    { GATEWAY_VAULT_KEYS: `${k2},${k1}`, DATABASE_URL: `sqlite:${join(folder, 'data/gateway.db')}` },
  )
  t.equal(await gateway.metric('gateway_credentials', { key_id: 'k1' }), 4)
  t.equal(await gateway.metric('gateway_credentials'), 4)
  t.equal(await gateway.stop(), 0)
})
