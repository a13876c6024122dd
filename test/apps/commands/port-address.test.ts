/** Where a command finds the gateway of a configuration. */
import { join } from 'node:path'
import t from 'tap'
import { type PortTerms, portUrl } from '../../../src/apps/commands/port-address.ts'

const TERMS: Omit<PortTerms, 'part'> = { defaultPort: 1, key: 'apiKey', missing: '', otherKind: '' }

t.test('the address has the scheme of the port, and a host that can be called', async t => {
  const folder = t.testdir({
    'plain.yaml': 'listen: { host: 0.0.0.0, port: 8081 }',
    'tls.yaml': 'listen: { host: "::", port: 8443, tls: { cert: a.pem, key: b.pem } }',
  })
  const urlOf = (file: string, part: PortTerms['part']) =>
    portUrl({ config: join(folder, file) }, { ...TERMS, part })
  t.equal(urlOf('plain.yaml', 'listen'), 'http://127.0.0.1:8081')
  t.equal(urlOf('tls.yaml', 'listen'), 'https://[::1]:8443')
  t.equal(urlOf('tls.yaml', 'admin'), 'http://127.0.0.1:9090', 'the admin port has no TLS')
})
