/** The switch for the suite that runs the tests of the front again over TLS, and a certificate for it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { CertificateFiles } from '../../src/server/certificate.ts'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { tempFolder } from './temp-folder.ts'

/** Set before the tests are imported. */
export const OVER_TLS = process.env['TEST_OVER_TLS'] === '1'

/** Writes a key and a certificate into a folder of their own. */
export function certificateFiles(pair = selfSigned(['localhost'], true)): CertificateFiles {
  const folder = tempFolder('sluice-tls')
  const files = { cert: join(folder, 'tls.crt'), key: join(folder, 'tls.key') }
  writeFileSync(files.cert, pair.cert)
  writeFileSync(files.key, pair.key, { mode: 0o600 })
  return files
}
