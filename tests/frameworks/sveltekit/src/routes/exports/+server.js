import { download } from '../../../limits.mjs';

export const GET = ({ request, getClientAddress }) => download(request, { address: getClientAddress() });
