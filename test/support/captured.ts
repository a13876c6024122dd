/** Captures as a test reads them: the text of all sealed files of a capture, opened with the gateway's keys. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { capturesFolder, partPath } from '../../src/features/captures/folder.ts'
import { openSealedFile } from '../../src/features/captures/sealed-file.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'

/** The parts of a record that tests look at. */
export interface CapturedRecord {
  readonly generation_id: string
  readonly parent_id?: string
  readonly dialect: string
  readonly request: Record<string, unknown>
  readonly calls: readonly {
    readonly provider: string
    readonly method: string
    readonly host: string
    readonly path: string
    readonly headers: readonly (readonly [string, string])[]
    readonly body: { readonly bytes: number; readonly text?: string; readonly cut_after?: number }
    readonly status: number | null
    readonly reply: {
      readonly bytes: number
      readonly text?: string
      readonly base64?: string
      readonly cut_after?: number
      readonly left_out?: string
    }
    readonly error: string | null
  }[]
  readonly output: unknown
  readonly error: { readonly type: string; readonly message: string } | null
  readonly left_out?: number
}

interface CapturedGateway {
  readonly storageUrl: string
  readonly vaultKeys: string
}

/** The text of a capture, and whether all its files have an end. */
export async function captured(
  { storageUrl, vaultKeys }: CapturedGateway,
  id: string,
): Promise<{
  readonly text: string
  readonly isWhole: boolean
  readonly records: readonly CapturedRecord[]
}> {
  const store = await openStore(storageUrl)
  try {
    const record = (await store.captures.list()).find(each => each.id === id)
    if (record === undefined) throw new Error(`no capture ${id}`)
    let text = ''
    let isWhole = true
    for (const { name } of await store.captures.parts(id)) {
      const path = partPath(capturesFolder(storageUrl), id, name)
      const owner = { captureId: id, organizationId: record.organizationId, name }
      for await (const piece of openSealedFile(path, parseVaultKeys(vaultKeys), owner)) {
        if (piece.kind === 'text') text += piece.bytes.toString()
        else isWhole &&= piece.isWhole
      }
    }
    const lines = text.split('\n').slice(0, -1)
    return { text, isWhole, records: lines.map(line => JSON.parse(line) as CapturedRecord) }
  } finally {
    await store.close()
  }
}

/** All files of captures below the data folder: their bytes, and their modes. */
export function captureFiles(storageUrl: string): { path: string; bytes: Buffer; mode: number }[] {
  const folder = capturesFolder(storageUrl)
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && entry.name.endsWith('.sealed'))
    .map(entry => join(entry.parentPath, entry.name))
    .map(path => ({ path, bytes: readFileSync(path), mode: statSync(path).mode & 0o777 }))
}
