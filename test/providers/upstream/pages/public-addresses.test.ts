import t from 'tap'
import { isPublicAddress } from '../../../../src/providers/upstream/pages/public-addresses.ts'

const PUBLIC = [
  '1.1.1.1',
  '8.8.8.8',
  '9.255.255.255',
  '11.0.0.0',
  '100.63.255.255',
  '100.128.0.0',
  '126.255.255.255',
  '128.0.0.0',
  '169.253.255.255',
  '169.255.0.0',
  '172.15.255.255',
  '172.32.0.0',
  '192.167.255.255',
  '192.169.0.0',
  '198.17.255.255',
  '198.20.0.0',
  '223.255.255.255',
  '168.63.129.17',
  '2001:200::1',
  '2001:4860:4860::8888',
  '2606:4700:4700::1111',
  '2a00:1450:4001:830::200e',
]

t.test('the neighbours of every refused network are public', async t => {
  for (const address of PUBLIC) t.ok(isPublicAddress(address), address)
})

t.test('what is no address in its usual writing is not', async t => {
  for (const text of [
    '',
    'localhost',
    '127.1',
    '2130706433',
    '08.8.8.8',
    '8.8.8.8:80',
    '[2606:4700::1]',
    '2606:4700::1%eth0',
  ])
    t.notOk(isPublicAddress(text), text)
})
