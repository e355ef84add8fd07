"""The small tables: stores and menu of the public data set, invented payment methods and vouchers."""

import csv

import numpy as np
from numpy.typing import NDArray

from kopitiam.contracts.money import UNITS, to_units

STORES = """\
store_id,store_name,street,postal_code,city,state,latitude,longitude
1,G Coffee @ USJ 89q,Jalan Dewan Bahasa 5/9,50998,USJ 89q,Kuala Lumpur,3.117134,101.615027
2,G Coffee @ Kondominium Putra,Jln Yew 6X,63826,Kondominium Putra,Selangor Darul Ehsan,2.959571,101.51772
3,G Coffee @ USJ 57W,Jalan Bukit Petaling 5/16C,62094,USJ 57W,Putrajaya,2.951038,101.663698
4,G Coffee @ Kampung Changkat,Jln 6/6A,62941,Kampung Changkat,Putrajaya,2.914594,101.704486
5,G Coffee @ Seksyen 21,Jalan Anson 4k,62595,Seksyen 21,Putrajaya,2.937599,101.698478
6,G Coffee @ Alam Tun Hussein Onn,Jln Pasar Besar 63s,63518,Alam Tun Hussein Onn,Selangor Darul Ehsan,3.279175,101.784923
7,G Coffee @ Damansara Saujana,Jln 8/74,65438,Damansara Saujana,Selangor Darul Ehsan,3.22081,101.58459
8,G Coffee @ Bandar Seri Mulia,Jalan Wisma Putra,58621,Bandar Seri Mulia,Kuala Lumpur,3.140674,101.706562
9,G Coffee @ PJS8,Jalan 7/3o,62418,PJS8,Putrajaya,2.952444,101.702623
10,G Coffee @ Taman Damansara,Jln 2,67102,Taman Damansara,Selangor Darul Ehsan,3.497178,101.595271
"""  # noqa: E501
MENU_ITEMS = """\
item_id,item_name,category,price,is_seasonal,available_from,available_to
1,Espresso,coffee,6.0,False,,
2,Americano,coffee,7.0,False,,
3,Latte,coffee,8.0,False,,
4,Cappuccino,coffee,8.0,False,,
5,Flat White,coffee,9.0,False,,
6,Mocha,coffee,9.5,False,,
7,Hot Chocolate,non-coffee,9.0,False,,
8,Matcha Latte,non-coffee,10.0,False,,
"""
PAYMENT_METHODS = """\
method_id,method_name,category
1,Cash,cash
2,Debit Card,card
3,Credit Card,card
4,E-Wallet,digital
5,Bank Transfer,digital
"""
VOUCHERS = """\
voucher_id,voucher_code,discount_type,discount_value,valid_from,valid_to
1,MORNING05,percent,5.0,2023-07-01,2025-06-30
2,REGULAR09,percent,9.0,2023-07-01,2025-06-30
3,MEMBER15,percent,15.0,2023-07-01,2025-06-30
4,FRIENDS35,percent,35.0,2023-07-01,2025-06-30
5,FREECUP10,fixed,10.0,2023-07-01,2025-06-30
"""
SMALL_TABLES = {
    "stores": STORES,
    "menu_items": MENU_ITEMS,
    "payment_methods": PAYMENT_METHODS,
    "vouchers": VOUCHERS,
}

THOUSANDTH = UNITS // 1000


def count(table: str) -> int:
    """Return the number of records of a small table; their ids are 1, 2, 3 and so on."""
    return len(_column(table, 0))


def prices() -> NDArray[np.int64]:
    """Return the price of each menu item, in units of money."""
    return _units(_column(MENU_ITEMS, 3))


def discounts(voucher: NDArray[np.int64], original: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the discount of each voucher (its index in the table): to three decimals, at most the amount."""
    value = _units(_column(VOUCHERS, 3))[voucher]
    is_percent = np.array([kind == "percent" for kind in _column(VOUCHERS, 2)])[voucher]
    divisor = 100 * UNITS * THOUSANDTH
    share = (original * value + divisor // 2) // divisor * THOUSANDTH
    return np.minimum(np.where(is_percent, share, value), original)


def _column(table: str, index: int) -> list[str]:
    _, *records = csv.reader(table.splitlines())
    return [record[index] for record in records]


def _units(texts: list[str]) -> NDArray[np.int64]:
    return np.array([to_units(text) for text in texts], dtype=np.int64)
